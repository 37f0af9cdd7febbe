// Colours lines of code: comments, strings, numbers and keywords, by what many languages have in common.

import { make, visible } from "./dom.js";

const WORDS = new Set(
  (
    "abstract and as assert async await begin bool boolean break case catch char class const continue def default defer " +
    "del delete do double elif else end enum esac except export extends extern false False final finally float fn for " +
    "foreach from func function global go goto if impl implements import in include instanceof int interface is lambda " +
    "let local long loop match mod module mut namespace new nil None nonlocal not null or package pass private protected " +
    "pub public raise return select self Self short signed sizeof static string struct super switch then this throw " +
    "throws trait true True try type typedef typeof union unsafe unsigned until use using var virtual void volatile when " +
    "where while with yield SELECT FROM WHERE INSERT UPDATE DELETE CREATE TABLE JOIN ON GROUP ORDER BY AND OR NOT NULL"
  ).split(" "),
);
const HASH = /^(py|python|sh|bash|zsh|shell|console|ruby|rb|perl|r|yaml|yml|toml|ini|make|makefile|dockerfile|elixir|nim|julia)$/;
const DASH = /^(sql|lua|haskell|hs|ada|elm)$/;
const PLAIN = /^(text|txt|plain|output|markdown|md)$/;

// The nodes of a line, and the mark that ends what the line leaves open (a long comment or string), or "".
export function line(text, language, open = "") {
  if (PLAIN.test(language)) return [visible(text), ""];
  const nodes = [];
  let plain = "";
  const add = (kind, part) => {
    if (plain) nodes.push(...visible(plain));
    plain = "";
    nodes.push(make("span", { className: kind }, ...visible(part)));
  };
  let at = 0;
  if (open) {
    const end = text.indexOf(open);
    if (end < 0) return [[make("span", { className: open === "*/" ? "c" : "s" }, ...visible(text))], open];
    at = end + open.length;
    add(open === "*/" ? "c" : "s", text.slice(0, at));
  }
  const comment = HASH.test(language) ? "#" : DASH.test(language) ? "--" : "//";
  const slashes = comment === "//";
  while (at < text.length) {
    const rest = text.slice(at);
    if (rest.startsWith(comment) && (comment !== "#" || at === 0 || /\s/.test(text[at - 1]))) {
      add("c", rest);
      break;
    }
    const long = slashes && rest.startsWith("/*") ? "*/" : /^("""|''')/.exec(rest)?.[0];
    if (long) {
      const end = rest.indexOf(long, long === "*/" ? 2 : 3);
      add(long === "*/" ? "c" : "s", end < 0 ? rest : rest.slice(0, end + long.length));
      if (end < 0) return [nodes, long];
      at += end + long.length;
      continue;
    }
    const found =
      /^(?<s>"(?:[^"\\]|\\.)*"?|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`)|^(?<n>\d[\w.]*)|^(?<w>[A-Za-z_$][\w$]*)/u.exec(rest);
    if (found === null) plain += text[at++];
    else {
      const { s, n, w } = found.groups;
      if (s !== undefined) add("s", s);
      else if (n !== undefined) add("n", n);
      else if (WORDS.has(w)) add("k", w);
      else plain += w;
      at += found[0].length;
    }
  }
  if (plain) nodes.push(...visible(plain));
  return [nodes, ""];
}
