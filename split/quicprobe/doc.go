// Package quicprobe tests, as a client, how far sessions with a QUIC server may be split: whether a session survives a new
// port or address of the client (RFC 9000, section 9), how many at a time, and how often. The changes look like those of a
// NAT or of a relay of package split: quic-go does not notice that its datagrams move from one [path.Flow] to another.
//
// The server is somebody else's: a probe is bounded in time and bytes, asks only for what it is told to, and sends only
// GETs.
//
// Do not use this package to split a session: that is package split.
package quicprobe
