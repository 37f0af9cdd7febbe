# Runs specpair.rb's `install` without Homebrew: the words of a formula that it uses stand here, and do what Homebrew's do.
#
#     ruby deploy/packages/trials/formula.rb PREFIX
#
# Takes the sdist in dist/. PIP_FIND_LINKS may name a folder with a wheel of llama.cpp, which is compiled otherwise.
require "fileutils"
require "pathname"
require "tmpdir"

class Pathname
  def install_symlink(target)
    mkpath
    FileUtils.ln_sf(target, self / Pathname(target).basename)
  end
end

module Language
  module Python
    module Virtualenv
      def virtualenv_create(root, _python, without_pip: true)
        raise "pip is needed" if without_pip

        system "python3", "-m", "venv", root
      end
    end
  end
end

class Formula
  @told = {}
  class << self
    attr_reader :told

    def inherited(child)
      super
      child.instance_variable_set(:@told, {})
    end

    %i[desc homepage url sha256 license].each { |word| define_method(word) { |value| told[word] = value } }
    def depends_on(what) = (told[:needs] ||= []) << what
    def service(&block) = told[:service] = block
    def test(&block) = told[:test] = block
  end

  attr_reader :buildpath, :prefix

  def initialize(prefix, buildpath)
    @prefix = Pathname(prefix)
    @buildpath = Pathname(buildpath)
  end

  def version = self.class.told[:url][/-([\d.]+)\.tar/, 1]
  def libexec = prefix / "libexec"
  def bin = prefix / "bin"
  def opt_bin = bin
  def var = prefix / "var"
  def man1 = prefix / "share/man/man1"

  def system(*command)
    command = command.map(&:to_s)
    puts "$ #{command.join(" ")}"
    Kernel.system(*command) or raise "failed: #{command.first}"
  end

  def shell_output(command) = `#{command}`

  def assert_match(expected, actual)
    actual.include?(expected) or raise "#{actual} has no #{expected}"
  end

  def generate_completions_from_executable(*command, shells:)
    shells.each do |shell|
      folder = prefix / "completions" / shell.to_s
      folder.mkpath
      (folder / command.first.basename).write(IO.popen([*command.map(&:to_s), shell.to_s], &:read))
    end
  end

  # The words of a service only name things.
  %i[run keep_alive log_path error_log_path].each { |word| define_method(word) { |value| puts "#{word}: #{value}" } }
end

checkout = Pathname(__dir__).join("../../..").expand_path
load checkout / "deploy/packages/specpair.rb"
Dir.mktmpdir do |folder|
  sdist = checkout / "dist" / File.basename(Specpair.told[:url])
  Kernel.system("tar", "-xzf", sdist.to_s, "-C", folder, "--strip-components=1") or raise "no #{sdist}: run `make dist`"
  formula = Specpair.new(File.expand_path(ARGV.fetch(0)), folder)
  formula.man1.mkpath
  formula.install
  formula.instance_eval(&Specpair.told[:service])
  formula.instance_eval(&Specpair.told[:test])
  puts Dir.chdir(formula.prefix) { Dir["{bin,completions,share}/**/*"].sort }
end
