// Package plot draws the few kinds of figure that Heddle's reports need, as self-contained SVG without scripts or
// fonts. Figures follow the reader's light or dark preference, label series as well as colouring them, and have a title
// and a description for screen readers. They are not interactive.
package plot

// Palette is the style sheet of all figures. Put it once into a style element of a page. The colours are by Okabe and
// Ito, which colour-blind people can distinguish.
const Palette = `.plot{font:12px system-ui,sans-serif;--ink:#1c2733;--soft:#5b6875;--rule:#d5dbe1;
--s0:#0072b2;--s1:#d55e00;--s2:#009e73;--s3:#b3589a;--s4:#8a6d00;--s5:#3d8fc4}
.plot text{fill:var(--ink)}.plot .soft{fill:var(--soft)}.plot .rule{stroke:var(--rule);stroke-width:1;fill:none}
.plot .name{font-weight:600}
@media (prefers-color-scheme:dark){.plot{--ink:#e6ebf0;--soft:#9aa7b4;--rule:#38424c;
--s0:#56b4e9;--s1:#f0883e;--s2:#2fbf92;--s3:#dd94c4;--s4:#e0c341;--s5:#8cc9ee}}
@media print{.plot{--ink:#000;--soft:#333;--rule:#bbb}}`

const colours = 6
