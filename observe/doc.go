// Package observe records what one observer of the network sees, and says what an observer learns from it.
//
// A [Tap] sits on a path and a [FileTap] writes what it sees as a pcapng file (draft-ietf-opsawg-pcapng), one file a
// path. [Read] reads captures back, ours or a stranger's; [Analyse] computes the exposure of each observer from the
// captures and from nothing else: not from the sender's counters, and not from its keys.
//
// Do not use this package to capture from a network interface, nor to dissect protocols in full: it looks for what
// names, content and time give away, and leaves the rest to Wireshark.
package observe
