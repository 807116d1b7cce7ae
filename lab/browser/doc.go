// Package browser runs an unmodified Chromium in a host of a world, by playwright-core. It reports the protocol of each
// response and whether each image is complete.
//
// A missing browser is a [path.Error] that wraps [peer.ErrMissing]. [Visit.Run] installs playwright-core into the
// user's cache with npm, once, in the version that package-lock.json pins.
//
// Do not use this package to browse: its Chromium has no sandbox.
package browser
