// Package stream tests heddle stream, send and recv through the binary: a device with two uplinks, overlay nodes, and a
// device that serves real programs, with captures on each path. Tests only.
package stream
