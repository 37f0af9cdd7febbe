"""The page's looks: dark, light, wide, narrow, on paper. Sides differ in colour and in the shape of their mark."""

# Okabe and Ito's colours, which all kinds of colour vision tell apart, darker on white and lighter on black so that
# they keep a contrast of 3 to 1.
LIGHT = ("#0072b2", "#c65100", "#00805d", "#a6478a", "#7a6200", "#3b7ea8")
_DARK = ("#56b4e9", "#f08a3c", "#2fbf94", "#dd93bd", "#e0c840", "#9fb8ff")
COLOURS = len(LIGHT)

STYLE = f"""
:root {{
  color-scheme: light dark;
  --back: #fff; --panel: #f6f7f9; --ink: #1c2126; --soft: #56606b; --line: #d5dae0; --link: #0a5ea8;
{"".join(f"  --side-{number}: {colour};" for number, colour in enumerate(LIGHT))}
}}
@media (prefers-color-scheme: dark) {{ :root {{
  --back: #14181c; --panel: #1d2329; --ink: #e8ebee; --soft: #a3adb8; --line: #39424c; --link: #7cc0ff;
{"".join(f"  --side-{number}: {colour};" for number, colour in enumerate(_DARK))}
}} }}
* {{ box-sizing: border-box; }}
body {{ margin: 0; background: var(--back); color: var(--ink); font: 16px/1.5 system-ui, sans-serif; }}
header, main, footer {{ max-width: 72rem; margin: 0 auto; padding: 0 1rem; }}
h1 {{ font-size: 1.6rem; line-height: 1.25; margin: 1.5rem 0 .25rem; }}
h2 {{ font-size: 1.25rem; margin: 2.5rem 0 .5rem; border-bottom: 1px solid var(--line); padding-bottom: .25rem; }}
h3 {{ font-size: 1rem; margin: 0 0 .5rem; }}
p {{ margin: .5rem 0; }}
.soft {{ color: var(--soft); }}
a {{ color: var(--link); }}
:focus-visible {{ outline: 3px solid var(--link); outline-offset: 2px; }}
nav ul {{ display: flex; flex-wrap: wrap; gap: .25rem 1rem; list-style: none; padding: 0; margin: .75rem 0; }}
.scroll {{ overflow-x: auto; margin: .75rem 0; border: 1px solid var(--line); border-radius: .4rem; }}
table {{ border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: .9rem; width: 100%; }}
th, td {{ padding: .35rem .7rem; text-align: right; white-space: nowrap; border-top: 1px solid var(--line); }}
thead th {{ background: var(--panel); border-top: 0; white-space: normal; vertical-align: bottom; min-width: 4.5rem; }}
th:first-child, td:first-child {{ text-align: left; }}
tbody th {{ font-weight: 600; }}
.words th, .words td {{ text-align: left; white-space: nowrap; }}
.charts {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 26rem), 1fr)); gap: 1rem; }}
figure {{ margin: 0; padding: .75rem; background: var(--panel); border: 1px solid var(--line); border-radius: .4rem; }}
figcaption {{ font-weight: 600; }}
figcaption span {{ display: block; font-weight: 400; font-size: .85rem; color: var(--soft); }}
svg {{ display: block; width: 100%; max-width: 36rem; height: auto; }}
svg.mark {{ display: inline-block; width: .9rem; height: .9rem; vertical-align: -.1rem; margin-right: .4rem; }}
svg text {{ font: 11px system-ui, sans-serif; fill: var(--ink); }}
svg text {{ paint-order: stroke; stroke: var(--panel); stroke-width: 3px; }}
svg .soft {{ fill: var(--soft); }}
svg .strong {{ font-weight: 600; }}
svg .right {{ text-anchor: end; }}
svg .middle {{ text-anchor: middle; }}
svg .axis {{ stroke: var(--line); stroke-width: 1; }}
svg .one {{ stroke: var(--soft); stroke-width: 1; stroke-dasharray: 3 3; }}
{"".join(f".side-{at} {{ fill: var(--side-{at}); stroke: var(--side-{at}); }}" for at in range(COLOURS))}
svg .range {{ stroke-width: 2.5; }}
svg .line {{ fill: none; stroke-width: 1.75; stroke-linejoin: round; }}
svg .band {{ stroke: none; opacity: .22; }}
svg .bar {{ stroke: none; }}
svg .message {{ fill: none; stroke-width: 1; opacity: .75; }}
svg.wide {{ max-width: none; min-width: 40rem; }}
figure:has(svg.wide) {{ overflow-x: auto; margin: .75rem 0; }}
svg .wait {{ fill: var(--soft); opacity: .5; }}
svg .shaded {{ fill: var(--soft); opacity: .13; }}
svg .undecided {{ fill: var(--panel); stroke-width: 2; }}
.legend {{ list-style: none; display: flex; flex-wrap: wrap; gap: .25rem 1.25rem; padding: 0; margin: .5rem 0; }}
ul.said {{ padding-left: 1.2rem; margin: .5rem 0; }}
details {{ margin: .5rem 0; }}
summary {{ cursor: pointer; color: var(--link); }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; background: var(--panel); border: 1px solid var(--line);
  border-radius: .4rem; padding: .6rem; margin: .25rem 0 .75rem; font-size: .85rem;
  max-height: 20rem; overflow: auto; }}
.two {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 20rem), 1fr)); gap: 0 1rem; }}
dt {{ font-weight: 600; }}
dd {{ margin: 0 0 .5rem; }}
footer {{ margin: 3rem auto 2rem; color: var(--soft); font-size: .85rem; }}
@media print {{ .scroll {{ overflow: visible; }} nav {{ display: none; }} }}
"""
