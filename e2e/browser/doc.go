// Package browser tests splitting with an unmodified Chromium over HTTP/3: while paths switch, and behind censors.
// Tests only.
package browser
