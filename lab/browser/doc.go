// Package browser drives an unmodified Chromium in a host of a world, by playwright-core, and says what the pages were
// made of: which protocol each response came by, and whether each image is whole.
//
// A browser that this machine lacks is a [path.Error] that wraps [peer.ErrMissing]. playwright-core is not part of the
// module: [Visit.Run] installs the version that package-lock.json pins, by npm, into the user's cache, once.
//
// Do not use this package to browse: its Chromium has no sandbox.
package browser
