// Package quicprobe asks a QUIC server, as a client of it, how far its sessions may be split: whether a session survives
// a new port and a new address of the client (RFC 9000, section 9), how many at a time, and how often.
//
// The changes are those that a NAT makes, or a relay of package split: the client's own QUIC (quic-go) knows nothing of
// them. Its datagrams go through [path.Flow]s, and from one moment to the next through another one.
//
// It is somebody's server: a probe has a bound on its time and its bytes, only ever asks for what it is told to ask
// for, and sends nothing but a GET.
//
// Do not use this package to split a session: that is package split.
package quicprobe
