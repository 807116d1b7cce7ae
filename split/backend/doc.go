// Package backend holds what the backends share that act below the socket: [heddle/split/kernel] and [heddle/split/route].
// Programs send straight to the server, and this machine decides by which path each packet leaves.
//
// [Members] are the paths of such a session with their health, [Guard] drops what would leave otherwise, and [Journal]
// keeps what was changed on this machine, so that it is taken back after a crash too.
//
// Do not use it for a backend that has sockets of its own: that is package split.
package backend
