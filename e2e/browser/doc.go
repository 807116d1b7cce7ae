// Package browser tests splitting with an unmodified Chromium: pages over HTTP/3 while paths switch, and behind
// censors. Tests only.
package browser
