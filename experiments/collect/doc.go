// Package collect records what observers see of page loads: an unmodified Chromium visits real pages, and a capture is made for each
// observer. It does so through `heddle up`, with one capture for each path (CoMPS, figure 5a and section 4.3), by the pseudonyms of a cloud,
// and by Tor over the covers of `heddle disguise` (StegoTorus, section 6).
//
// The pages are those that Debian's packages install under /usr/share, served inside the lab. They have styles, scripts
// and pictures, but are not web sites: their results do not apply to the Web.
package collect
