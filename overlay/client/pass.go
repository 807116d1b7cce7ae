package client

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"heddle/identity"
	"heddle/internal/atomicfile"
	"heddle/path"
	"heddle/path/masque"
)

const (
	maxPass      = 16 << 10 // bytes
	maxAddresses = 8
)

// Pass is what a device needs to use a node. It holds no secret: its grant is bound to the device's key.
type Pass struct {
	Name      string       `json:"name"`
	Key       identity.Key `json:"key"`
	Addresses []string     `json:"addresses"` // HOST:PORT each; the port is for TCP and UDP
	Grant     Signed       `json:"grant"`
}

var nameRule = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,31}$`)

// CheckName refuses invalid names of a node.
func CheckName(name string) error {
	if nameRule.MatchString(name) && !strings.HasSuffix(name, ".json") {
		return nil
	}
	return &path.Error{What: fmt.Sprintf("node %.40q", name), Why: "that is no name for a node",
		Hint: "a name is 1 to 32 letters, digits, '.', '_' or '-', starts with a letter or digit, and does not end in .json"}
}

// Check refuses a pass that could never work.
func (p Pass) Check() error {
	if err := CheckName(p.Name); err != nil {
		return err
	}
	bad := func(why string) error {
		return &path.Error{What: "pass for " + p.Name, Why: why, Hint: "ask the node's owner for a new one: `heddle node grant` makes it"}
	}
	if p.Key.IsZero() {
		return bad("it does not say the node's key")
	}
	if len(p.Addresses) == 0 || len(p.Addresses) > maxAddresses {
		return bad(fmt.Sprintf("it has %d addresses, and needs 1 to %d", len(p.Addresses), maxAddresses))
	}
	for _, a := range p.Addresses {
		if _, _, err := SplitAddress(a); err != nil {
			return bad(err.Error())
		}
	}
	if nodes := p.Grant.Grant.Nodes; len(nodes) > 0 && !slices.Contains(nodes, p.Key) {
		return bad("the grant in it is for other nodes")
	}
	return nil
}

// SplitAddress reads HOST:PORT.
func SplitAddress(text string) (host string, port uint16, err error) {
	host, portText, err := net.SplitHostPort(text)
	if err == nil {
		err = masque.CheckHost(host)
	}
	n, numberErr := strconv.ParseUint(portText, 10, 16)
	if err != nil || numberErr != nil || n == 0 || portText[0] == '+' {
		return "", 0, fmt.Errorf("%.80q is no HOST:PORT", text)
	}
	return host, uint16(n), nil
}

// ParsePass reads a pass as JSON.
func ParsePass(text []byte) (Pass, error) {
	var p Pass
	if len(text) > maxPass {
		return Pass{}, fmt.Errorf("it is longer than %d bytes", maxPass)
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&p); err != nil {
		return Pass{}, err
	}
	if decoder.More() {
		return Pass{}, errors.New("something follows the pass")
	}
	return p, p.Check()
}

// Dir returns the directory of this user's passes: nodes, beside the identity.
func Dir() (string, error) {
	file, err := identity.DefaultFile()
	return filepath.Join(filepath.Dir(file), "nodes"), err
}

// IsFile reports whether the ARG of a path node:ARG names a file, rather than a pass in [Dir].
func IsFile(arg string) bool {
	return strings.ContainsRune(arg, '/') || strings.HasSuffix(arg, ".json")
}

// LoadPass reads a pass by NAME, from NAME.json in [Dir], or from a file.
func LoadPass(arg string) (Pass, error) {
	file := arg
	if !IsFile(arg) {
		if err := CheckName(arg); err != nil {
			return Pass{}, err
		}
		dir, err := Dir()
		if err != nil {
			return Pass{}, err
		}
		file = filepath.Join(dir, arg+".json")
	}
	p, err := readPass(file)
	switch {
	case errors.Is(err, fs.ErrNotExist) && !IsFile(arg):
		return Pass{}, &path.Error{What: "node " + arg, Why: "no pass of that name is here", Hint: "`heddle node add FILE` adds one; `heddle node list` lists them"}
	case err == nil && !IsFile(arg) && p.Name != arg:
		return Pass{}, &path.Error{What: "node " + arg, Why: fmt.Sprintf("its file %s is the pass for %s", file, p.Name), Hint: "add it again: `heddle node add FILE`"}
	}
	return p, err
}

func readPass(file string) (Pass, error) {
	wrong := func(why string, err error) error {
		return &path.Error{What: "pass " + file, Why: why, Err: err, Hint: "a pass is the JSON that `heddle node grant` prints"}
	}
	f, err := os.Open(file)
	if err != nil {
		return Pass{}, wrong("it cannot be read", err)
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxPass+1))
	if err != nil {
		return Pass{}, wrong("it cannot be read", err)
	}
	p, err := ParsePass(text)
	if err != nil {
		return Pass{}, wrong("it is no pass", err)
	}
	return p, nil
}

// Save writes the pass atomically as NAME.json in a directory. Only its owner may read it, since it reveals which nodes this
// person uses. It replaces a pass of the same key, and fails if another node has the name.
func (p Pass) Save(dir string) (file string, err error) {
	if err := p.Check(); err != nil {
		return "", err
	}
	file = filepath.Join(dir, p.Name+".json")
	what := "node " + p.Name
	if old, err := readPass(file); err == nil && old.Key != p.Key {
		return "", &path.Error{What: what, Why: fmt.Sprintf("another node has this name here, with the key %v", old.Key),
			Hint: "add it under another name, with --name"}
	}
	if err := atomicfile.WriteJSON(file, p); err != nil {
		return "", &path.Error{What: what, Why: "its pass cannot be written", Err: err}
	}
	return file, nil
}

// Passes reads all passes in a directory, sorted by name. The error describes those that cannot be read.
func Passes(dir string) ([]Pass, error) {
	files, err := filepath.Glob(filepath.Join(dir, "*.json"))
	var list []Pass
	for _, file := range files {
		p, readErr := readPass(file)
		if readErr != nil {
			err = errors.Join(err, readErr)
			continue
		}
		list = append(list, p)
	}
	return list, err
}
