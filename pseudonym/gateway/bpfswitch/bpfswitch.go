// Package bpfswitch leads the packets of moved connections to their tenants by BPF programs at this machine's devices (tc), which
// see what arrives and what leaves. It needs CAP_BPF and CAP_NET_ADMIN on Linux 5.10 or later, and a BPF file system. Package lead says what
// a switch does.
//
// Programs and entries stay when the process ends, and the next process takes them over: filters of tc hold the programs, and the BPF file
// system the maps. The programs give packets a priority by which a rule of nftables keeps them from connection tracking, which saw the connections
// begin elsewhere, so that no address translation of this machine changes them. A process removes the entries that are over.
package bpfswitch

import (
	"cmp"
)

// Pins is the directory of the maps. Each network namespace has a directory in it.
const Pins = "/sys/fs/bpf/heddle"

// Filters of tc, as their names are.
const (
	FilterIn  = "heddle_lead_in"
	FilterOut = "heddle_lead_out"
)

// Table is the name of the table of nftables, of the family inet. It stays when the process ends.
const Table = "heddle_untracked"

// Options configure a switch. The zero value is the one for a machine.
type Options struct {
	Pins string // a directory in a BPF file system; Pins if it is empty
	Most int    // connections; lead.Most if it is 0
}

func (o Options) pins() string { return cmp.Or(o.Pins, Pins) }
