package collect

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"time"

	"heddle/observe"
	"heddle/path"
)

// Visit is the record of one page load.
type Visit struct {
	Site     string    `json:"site"`
	Round    int       `json:"round"`
	Defended bool      `json:"defended"`
	At       time.Time `json:"at"`
	Seconds  float64   `json:"seconds"`
	// Repeats counts the attempts that were rejected; the other fields describe the last attempt.
	Repeats int `json:"repeats,omitempty"`
	// Error says why the load is rejected; a resumed collection tries it again.
	Error      string             `json:"error,omitempty"`
	LatenessMS float64            `json:"lateness_ms"` // mean lateness of the emulated links
	Rows       []observe.TraceRow `json:"rows,omitempty"`
}

// key identifies a visit.
type key struct {
	site     string
	round    int
	defended bool
}

func (v Visit) key() key { return key{v.Site, v.Round, v.Defended} }

func (t task) key() key { return key{t.site.Name, t.round, t.defended} }

// journal keeps visits in a file, one a line, so that an interrupted collection can be resumed.
type journal struct {
	file *os.File
	done map[key]Visit // the last record of each
}

// setting is the first line: what all visits of a journal have in common.
type setting struct {
	Sites    string   `json:"sites"` // a digest
	Paths    int      `json:"paths"`
	Schedule []string `json:"schedule"`
}

// openJournal opens or makes the journal of a collection. It removes an incomplete last line.
func openJournal(name string, want setting) (*journal, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, &path.Error{What: "journal", Err: err}
	}
	j := &journal{file: f, done: map[key]Visit{}}
	if err := j.load(want); err != nil {
		f.Close()
		return nil, &path.Error{What: "journal " + name, Why: err.Error(), Hint: "remove it to begin anew, or name another --out"}
	}
	return j, nil
}

func (j *journal) load(want setting) error {
	wanted, err := json.Marshal(want)
	if err != nil {
		return err
	}
	whole := int64(0)
	for r := bufio.NewReaderSize(j.file, 1<<20); ; {
		line, err := r.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			break // an incomplete line
		}
		if err != nil {
			return err
		}
		if whole == 0 {
			if !bytes.Equal(bytes.TrimSpace(line), wanted) {
				return errors.New("it is of another collection: other sites, paths or another schedule")
			}
		} else {
			var v Visit
			if err := json.Unmarshal(line, &v); err != nil {
				return err
			}
			j.done[v.key()] = v
		}
		whole += int64(len(line))
	}
	if err := j.file.Truncate(whole); err != nil {
		return err
	}
	if _, err := j.file.Seek(whole, io.SeekStart); err != nil {
		return err
	}
	if whole == 0 {
		_, err = j.file.Write(append(wanted, '\n'))
	}
	return err
}

func (j *journal) add(v Visit) error {
	line, err := json.Marshal(v)
	if err != nil {
		return err
	}
	if _, err := j.file.Write(append(line, '\n')); err != nil {
		return &path.Error{What: "journal", Err: err, Hint: "make room and run the same command again: it goes on from here"}
	}
	j.done[v.key()] = v
	return nil
}

func (j *journal) Close() error { return j.file.Close() }
