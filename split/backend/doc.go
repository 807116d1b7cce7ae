// Package backend holds what [heddle/split/kernel] and [heddle/split/route] share. With these backends programs send straight
// to the server, and this machine decides by which path each packet leaves.
//
// [Members] manages the paths of such a session and their health. [Guard] drops packets that would leave by another way.
// [OpenJournal] opens the record of the changes on this machine, so that they can be undone even after a crash.
//
// Do not use this package for a backend with sockets of its own: package split is for those.
package backend
