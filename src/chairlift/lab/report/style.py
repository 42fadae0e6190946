"""The one stylesheet of report pages and charts: light or dark as the reader's system is; hues are classes a to h."""

CHARTS = """
:root { color-scheme: light dark; --back: #fff; --card: #f6f7f9; --ink: #1d2530; --faint: #626d7a; --line: #dde2e8;
  --a: #2b6cb0; --b: #c05621; --c: #2f855a; --d: #97266d; --e: #7a6a4f; --f: #5a4fcf; --g: #9aa1ab; --h: #a07d00;
  --warn: #8a4b08; --warn-back: #fff3e0 }
@media (prefers-color-scheme: dark) { :root { --back: #14181d; --card: #1c2229; --ink: #e3e8ee; --faint: #9aa6b2;
  --line: #323b45; --a: #63a4e8; --b: #e8935a; --c: #5cc18d; --d: #e07bb8; --e: #c2ae8a; --f: #a79ff5; --g: #6d7783;
  --h: #d9b740; --warn: #ffca80; --warn-back: #3a2c14 } }
svg text { font: 12px system-ui, sans-serif; fill: var(--faint); white-space: pre }
svg .title { font-size: 14px; font-weight: 600; fill: var(--ink) } svg .back { fill: var(--card) }
svg .grid { stroke: var(--line) } svg .axis { stroke: var(--faint) }
svg line.mark { stroke: var(--ink); stroke-dasharray: 3 3; opacity: .7 } svg text.mark { font-size: 10px }
svg .a { --hue: var(--a) } svg .b { --hue: var(--b) } svg .c { --hue: var(--c) } svg .d { --hue: var(--d) }
svg .e { --hue: var(--e) } svg .f { --hue: var(--f) } svg .g { --hue: var(--g) } svg .h { --hue: var(--h) }
svg tspan, svg .bar, svg .star, svg .diamond { fill: var(--hue, var(--ink)) }
svg .area { fill: var(--hue); opacity: .8 }
svg .line { stroke: var(--hue); stroke-width: 1.6; fill: none } svg .cross { stroke: var(--ink); stroke-width: 1.8 }
svg .dots { stroke: var(--hue); stroke-width: 3.2; stroke-linecap: round; opacity: .65 } svg .large { stroke-width: 6 }
svg .dotted { stroke-dasharray: 2 3 } svg .dashed { stroke-dasharray: 6 3 }
svg .faint { opacity: .35 } svg .half { opacity: .65 }
"""
PAGE = (
    CHARTS
    + """body { font: 15px/1.5 system-ui, sans-serif; margin: 1.5rem auto; max-width: 76rem; padding: 0 1.2rem;
  background: var(--back); color: var(--ink) }
h1 { font-size: 1.35rem; margin: 0 0 .2rem } h2 { font-size: 1.05rem; margin: 1.8rem 0 .6rem }
p { margin: .6rem 0 } .about { color: var(--faint); margin: 0 0 1rem }
.warn { background: var(--warn-back); color: var(--warn); border-radius: 8px; padding: .5rem .9rem }
code, pre { background: var(--card); font-size: .9em } code { padding: 0 .2em }
pre { padding: .6rem .9rem; overflow-x: auto; border: 1px solid var(--line); border-radius: 8px }
.tiles { display: grid; grid-template-columns: repeat(auto-fit, minmax(15rem, 1fr)); gap: .7rem; margin-top: .8rem }
.tiles div, .charts svg { background: var(--card); border: 1px solid var(--line); border-radius: 8px }
.tiles div { padding: .6rem .9rem }
.tiles b { display: block; font-size: 1.45rem; line-height: 1.3; font-weight: 600 }
.tiles span { color: var(--faint); font-size: .82rem }
.charts { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 30rem), 1fr)); gap: .7rem;
  align-items: start; margin: .6rem 0 }
.charts svg { width: 100%; height: auto; display: block }
table { border-collapse: collapse; display: block; overflow-x: auto; font-size: .87rem;
  font-variant-numeric: tabular-nums }
th, td { padding: .25rem .6rem; text-align: right; border-bottom: 1px solid var(--line); font-weight: 400;
  vertical-align: top }
th { color: var(--faint) } .words { text-align: left }
td:first-child, th:first-child { text-align: left; padding-left: 0 }
"""
)
