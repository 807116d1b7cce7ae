// Package plot draws the few kinds of figure that Heddle's reports need, as SVG that stands by itself: no script, no
// font, no other resource. Figures follow the reader's light or dark preference, tell series apart by label as well as
// by colour, and carry a title and a description for those who listen to them.
//
// Do not use it to explore data: it has no interaction and few options.
package plot

// Palette is the style sheet of all figures: put it once into a page that holds figures, in a style element. Its
// colours are those of Okabe and Ito, which people with colour blindness can tell apart.
const Palette = `.plot{font:12px system-ui,sans-serif;--ink:#1c2733;--soft:#5b6875;--rule:#d5dbe1;
--s0:#0072b2;--s1:#d55e00;--s2:#009e73;--s3:#b3589a;--s4:#8a6d00;--s5:#3d8fc4}
.plot text{fill:var(--ink)}.plot .soft{fill:var(--soft)}.plot .rule{stroke:var(--rule);stroke-width:1;fill:none}
.plot .name{font-weight:600}
@media (prefers-color-scheme:dark){.plot{--ink:#e6ebf0;--soft:#9aa7b4;--rule:#38424c;
--s0:#56b4e9;--s1:#f0883e;--s2:#2fbf92;--s3:#dd94c4;--s4:#e0c341;--s5:#8cc9ee}}
@media print{.plot{--ink:#000;--soft:#333;--rule:#bbb}}`

const colours = 6
