package node

import (
	"bufio"
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"heddle/identity"
	"heddle/internal/atomicfile"
	"heddle/overlay/client"
	"heddle/path"
)

// maxRevoked bounds the file, in bytes.
const maxRevoked = 16 << 20

// checkRevocation refuses a word that is neither a grant's id nor a key.
func checkRevocation(word string) error {
	if raw, err := hex.DecodeString(word); err == nil && len(raw) == 16 && strings.ToLower(word) == word {
		return nil
	}
	if _, err := identity.ParseKey(word); err == nil {
		return nil
	}
	return fmt.Errorf("%.80q is neither the id of a grant nor a holder's key", word)
}

// parseRevoked reads one word per line. It ignores comments after # and empty lines.
func parseRevoked(text []byte) (map[string]bool, error) {
	list := map[string]bool{}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for n := 1; lines.Scan(); n++ {
		word, _, _ := strings.Cut(lines.Text(), "#")
		if word = strings.TrimSpace(word); word == "" {
			continue
		}
		if err := checkRevocation(word); err != nil {
			return nil, fmt.Errorf("line %d: %w", n, err)
		}
		list[word] = true
	}
	return list, lines.Err()
}

// stamp changes when the file changes.
type stamp struct {
	at   time.Time
	size int64
}

// readRevoked reads a file of revocations. An absent file has none.
func readRevoked(file string) (map[string]bool, stamp, error) {
	wrong := func(err error) (map[string]bool, stamp, error) {
		return nil, stamp{}, &path.Error{What: "revoked " + file, Why: "it cannot be read", Err: err, Hint: "a line is the id of a grant or the key of a holder; `heddle node revoke` writes it"}
	}
	info, err := os.Stat(file)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, stamp{}, nil
	}
	if err != nil {
		return wrong(err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxRevoked {
		return wrong(errors.New("it is no list of grants"))
	}
	text, err := os.ReadFile(file)
	if err != nil {
		return wrong(err)
	}
	list, err := parseRevoked(text)
	if err != nil {
		return wrong(err)
	}
	return list, stamp{info.ModTime(), info.Size()}, nil
}

// Revoke adds a grant's id, or a holder's key for all grants of that holder, to a file, which it creates if absent. A node
// running with the file ends what it revokes within seconds.
func Revoke(file, word, remark string) error {
	if err := checkRevocation(word); err != nil {
		return &path.Error{What: "revoke", Why: err.Error(), Hint: "`heddle node status` shows the ids of grants that are in use"}
	}
	list, _, err := readRevoked(file)
	if err != nil || list[word] {
		return err
	}
	if remark != "" {
		word += " # " + strings.Join(strings.Fields(remark), " ")
	}
	text, err := os.ReadFile(file)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if len(text) > 0 && text[len(text)-1] != '\n' {
		text = append(text, '\n')
	}
	// Write atomically: a node that reads half a line would serve nobody.
	if err := atomicfile.WritePrivate(file, slices.Concat(text, []byte(word+"\n"))); err != nil {
		return &path.Error{What: "revoked " + file, Why: "it cannot be written", Err: err}
	}
	return nil
}

// revoked is the file as last read. While it cannot be read, everything is revoked.
type revoked struct {
	file string

	mu     sync.Mutex
	list   map[string]bool // revoked ids of grants and keys of holders
	stamp  stamp
	broken bool
}

func openRevoked(file string) (*revoked, error) {
	r := &revoked{file: file}
	if file == "" {
		return r, nil
	}
	var err error
	r.list, r.stamp, err = readRevoked(file)
	return r, err
}

// refresh rereads a file that has changed, and reports whether it had.
func (r *revoked) refresh() (changed bool, err error) {
	if r.file == "" {
		return false, nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	var now stamp
	if info, err := os.Stat(r.file); err == nil {
		now = stamp{info.ModTime(), info.Size()}
	}
	if now == r.stamp && !r.broken {
		return false, nil
	}
	wasBroken := r.broken
	list, read, err := readRevoked(r.file)
	if err == nil && now == (stamp{}) && len(r.list) > 0 {
		err = &path.Error{What: "revoked " + r.file, Why: "it was there, and is gone", Hint: "put it back, or restart the node without it"}
	}
	if r.broken = err != nil; r.broken {
		if wasBroken {
			err = nil // already reported
		}
		return true, err
	}
	r.list, r.stamp = list, read
	return true, nil
}

// holds reports whether a grant is revoked.
func (r *revoked) holds(g client.Grant) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.broken || r.list[g.ID] || r.list[g.Holder.String()]
}
