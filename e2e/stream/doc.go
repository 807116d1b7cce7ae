// Package stream tests heddle stream, send and recv through the binary, in a world: a device with two uplinks, overlay
// nodes, and a device that serves real programs, with captures on each way as witnesses.
//
// It holds tests only; peers are in package peer.
package stream
