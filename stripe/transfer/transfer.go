// Package transfer sends files over one connection: names that cannot escape, a part that is taken up again where it
// broke off, and a SHA-256 of the whole before a file gets its name.
//
// The sender offers files; the receiver says what it holds of each already, by hash; the sender sends what is missing,
// and the hash of the whole; the receiver says what became of each. A file is NAME.part until its hash fits. An
// interruption on either side leaves the part, which the next transfer takes up.
//
// Do not use it over a connection that does not prove who is at the other end and keep the bytes secret: it does
// neither, a stripe does. Nor to mirror directories: nothing is ever deleted.
package transfer

import (
	"encoding/hex"
	"errors"
	"fmt"
)

// The versions of the protocol: each offer names its own.
const version = 1

// States of a file when its transfer is over.
const (
	// StateSent is a file that went over in this transfer, from its beginning.
	StateSent = "sent"
	// StateResumed is one of which a part was there before.
	StateResumed = "resumed"
	// StateThere is one that was there already, with the same content.
	StateThere = "there"
	// StateRefused is one that the receiver does not take.
	StateRefused = "refused"
	// StateFailed is one that could not be read or written, or whose hash did not fit.
	StateFailed = "failed"
	// StateWould is one that would be sent, in a dry run.
	StateWould = "would-send"
)

// Result says what became of one file.
type Result struct {
	Name  string `json:"name"`
	Size  int64  `json:"size"` // bytes
	State string `json:"state"`
	// Resumed is how many of the bytes were there before.
	Resumed int64 `json:"resumed,omitempty"`
	// SHA256 of the whole file, in hexadecimal; empty where it did not arrive.
	SHA256 string `json:"sha256,omitempty"`
	Why    string `json:"why,omitempty"`
}

// Arrived reports whether the receiver has the file now.
func (r Result) Arrived() bool {
	return r.State == StateSent || r.State == StateResumed || r.State == StateThere
}

// Report says what became of all files of a transfer.
type Report struct {
	Files []Result `json:"files"`
	// Bytes of content that went over the connection.
	Bytes int64 `json:"bytes"`
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

// Progress says how far a transfer is. Sizes are in bytes.
type Progress struct {
	File string `json:"file"` // the one at work
	Done int64  `json:"done"` // of this file
	Size int64  `json:"size"`
	// AllDone and All are of all files that were offered so far.
	AllDone int64 `json:"all_done"`
	All     int64 `json:"all"`
}

// progress is how far a transfer is between two files, and who hears of it.
type progress struct {
	Progress
	tell func(Progress) // or nil
}

// at tells that so many bytes of a file are done.
func (p *progress) at(f File, done int64) {
	if p.tell == nil {
		return
	}
	now := p.Progress
	now.File, now.Done, now.Size = f.Name, done, f.Size
	now.AllDone += done
	p.tell(now)
}

// ErrNotSpoken is what the other side's bytes give that are not of this protocol.
var ErrNotSpoken = errors.New("the other side does not speak this protocol of file transfer")

// StoppedError is what the other side said when it gave the transfer up.
type StoppedError struct{ Why string }

// Error gives the reason as the other side told it.
func (e *StoppedError) Error() string { return fmt.Sprintf("the other side gave up: %s", e.Why) }

// The messages, in JSON; see frame.go for how they travel.
type (
	offer struct {
		Version int    `json:"version"`
		DryRun  bool   `json:"dry_run,omitempty"`
		Files   []File `json:"files"`
	}
	answer struct {
		Files []answered `json:"files"`
	}
	// answered says what is there of a file. Where Refused says why, it is not taken unless what is held is all of it.
	answered struct {
		Held    []held `json:"held,omitempty"`
		Refused string `json:"refused,omitempty"`
	}
	held struct {
		Bytes  int64  `json:"bytes"`
		SHA256 digest `json:"sha256"`
		// Whole is a file that has its name already; else it is a part.
		Whole bool `json:"whole,omitempty"`
	}
	// begin comes before the data of a file that is not refused. There is none, and no ending, after There or Failed.
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

// digest is a SHA-256.
type digest [32]byte

func (d digest) String() string { return hex.EncodeToString(d[:]) }

// MarshalText gives 64 hexadecimal digits.
func (d digest) MarshalText() ([]byte, error) { return []byte(d.String()), nil }

// UnmarshalText reads 64 hexadecimal digits.
func (d *digest) UnmarshalText(text []byte) error {
	if len(text) != 2*len(d) {
		return errors.New("no SHA-256")
	}
	_, err := hex.Decode(d[:], text)
	return err
}

// untakable reports whether nothing follows of a file.
func (a answered) untakable() bool { return a.Refused != "" && len(a.Held) == 0 }
