// Package observe records what one observer of the network sees, and computes what the observer learns from it.
//
// A [Tap] sits on a path, and a [FileTap] writes what it sees to a pcapng file (draft-ietf-opsawg-pcapng), one for each
// path. [Read] reads captures from any program. [Analyse] computes the exposure of each observer from captures only,
// without the sender's counters or keys.
//
// Do not use it to capture from a network interface or to dissect protocols: it looks for what names, content and time
// reveal.
package observe
