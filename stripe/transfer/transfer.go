// Package transfer sends files over one connection. Names cannot escape the directory, interrupted files resume, and a file
// gets its name only when its SHA-256 fits.
//
// The sender offers files; the receiver answers with how much it holds of each; the sender shows the hash of that much, and the
// receiver answers what matches; the sender sends the missing data and the hash of the whole; the receiver reports on each file.
// An incomplete file is NAME.part, which the next transfer resumes.
//
// Use it only over a connection that authenticates and encrypts, such as a stripe. It never deletes files.
package transfer

import (
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
)

// version is the protocol version, which each offer names.
const version = 2

// States of a file when its transfer is over.
const (
	StateSent    = "sent"       // sent completely
	StateResumed = "resumed"    // a part was there before
	StateThere   = "there"      // it was there already, with the same content
	StateRefused = "refused"    // the receiver does not take it
	StateFailed  = "failed"     // it could not be read or written, or its hash did not fit
	StateWould   = "would-send" // it would be sent, in a dry run
)

// Result is the outcome for one file.
type Result struct {
	Name    string `json:"name"`
	Size    int64  `json:"size"` // bytes
	State   string `json:"state"`
	Resumed int64  `json:"resumed,omitempty"` // bytes that were there before
	SHA256  string `json:"sha256,omitempty"`  // of the whole file, in hexadecimal; empty if it did not arrive
	Why     string `json:"why,omitempty"`
}

// Arrived reports whether the receiver has the file now.
func (r Result) Arrived() bool {
	return r.State == StateSent || r.State == StateResumed || r.State == StateThere
}

// Report is the outcome for all files of a transfer.
type Report struct {
	Files []Result `json:"files"`
	Bytes int64    `json:"bytes"` // of content that went over the connection
}

// Missing counts the files that the receiver does not have.
func (r Report) Missing() int {
	n := 0
	for _, f := range r.Files {
		if !f.Arrived() {
			n++
		}
	}
	return n
}

// Progress is the progress of a transfer, in bytes.
type Progress struct {
	File string `json:"file"` // the current one
	Done int64  `json:"done"` // of this file
	Size int64  `json:"size"`
	// AllDone and All cover all files offered so far.
	AllDone int64 `json:"all_done"`
	All     int64 `json:"all"`
}

// progress is the state between two files.
type progress struct {
	Progress
	tell func(Progress) // or nil
}

// at reports that done bytes of f are done.
func (p *progress) at(f File, done int64) {
	if p.tell == nil {
		return
	}
	now := p.Progress
	now.File, now.Done, now.Size = f.Name, done, f.Size
	now.AllDone += done
	p.tell(now)
}

// ErrNotSpoken is the error for bytes that are not of this protocol.
var ErrNotSpoken = errors.New("the other side does not speak this protocol of file transfer")

// StoppedError is the other side's reason for giving up the transfer.
type StoppedError struct{ Why string }

// Error returns the other side's reason.
func (e *StoppedError) Error() string { return fmt.Sprintf("the other side gave up: %s", e.Why) }

// The messages, in JSON. See frame.go for the framing.
type (
	offer struct {
		Version int    `json:"version"`
		DryRun  bool   `json:"dry_run,omitempty"`
		Files   []File `json:"files"`
	}
	answer struct {
		Files []answered `json:"files"`
	}
	// answered is what the receiver holds of a file. With Refused, the file is only taken if it is already complete.
	answered struct {
		Held    []held `json:"held,omitempty"`
		Refused string `json:"refused,omitempty"`
	}
	held struct {
		Bytes int64 `json:"bytes"`
		Whole bool  `json:"whole,omitempty"` // it has its final name; otherwise it is a part
		// sum is the hash that the sender showed. The receiver never sends its own: the sender may not know the content.
		sum digest
	}
	// proof answers an answer in which something is held: the hashes of as much of each file. Another answer follows, which
	// keeps what is the same.
	proof struct {
		Files [][]digest `json:"files"`
	}
	// begin precedes the data of a file that is not refused. After There or Failed, neither data nor an ending follows.
	begin struct {
		From   int64  `json:"from"`
		There  bool   `json:"there,omitempty"`
		Failed string `json:"failed,omitempty"`
	}
	ending struct {
		SHA256 digest `json:"sha256"`
		Failed string `json:"failed,omitempty"`
	}
	results struct {
		Files []Result `json:"files"`
	}
	stopped struct {
		Why string `json:"why"`
	}
)

type digest [32]byte

func (d digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText returns 64 hexadecimal digits.
func (d digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads 64 hexadecimal digits.
func (d *digest) UnmarshalText(text []byte) error {
	if len(text) != 2*len(d) {
		return errors.New("no SHA-256")
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// untakable reports whether nothing is sent for a file.
func (a answered) untakable() bool { return a.Refused != "" && len(a.Held) == 0 }

// holds reports whether something is held of a file, so that a proof follows.
func (a answer) holds() bool {
	return slices.ContainsFunc(a.Files, func(one answered) bool { return len(one.Held) > 0 })
}
