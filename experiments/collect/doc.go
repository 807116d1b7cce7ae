// Package collect records what observers see of page loads: an unmodified Chromium visits real pages through
// `heddle up`, with one capture for each path (CoMPS, figure 5a and section 4.3).
//
// The pages are those that Debian's packages install under /usr/share, served inside the lab. They are real pages, with
// their styles, scripts and pictures, and are no web sites: do not take figures from them for those of the Web.
package collect
