# For Homebrew, in a tap of your own. The project has no public address yet: name where the sdist specpair_core-0.1.0.tar.gz
# of `make dist` lies, and its sum. pip compiles llama.cpp with Metal meanwhile, which takes some minutes.
class Specpair < Formula
  include Language::Python::Virtualenv

  desc "Speculative decoding between two machines"
  homepage "https://example.org/specpair"
  url "https://example.org/specpair/specpair_core-0.1.0.tar.gz"
  sha256 "0000000000000000000000000000000000000000000000000000000000000000"
  license "Apache-2.0"

  depends_on "cmake" => :build
  depends_on "ninja" => :build
  depends_on "python@3.13"

  def install
    virtualenv_create(libexec, "python3.13", without_pip: false)
    system libexec/"bin/python", "-m", "pip", "install", "#{buildpath}[all]"
    %w[drafter verifier specpair].each do |name|
      bin.install_symlink libexec/"bin"/name
      generate_completions_from_executable(bin/name, "completion", shells: [:bash, :zsh, :fish])
    end
  end

  service do
    run [opt_bin/"drafter", "serve"]
    keep_alive crashed: true
    log_path var/"log/specpair-drafter.log"
    error_log_path var/"log/specpair-drafter.log"
  end

  test do
    assert_match version.to_s, shell_output("#{bin}/drafter --version")
  end
end
