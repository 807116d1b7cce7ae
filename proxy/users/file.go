package users

import (
	"bufio"
	"bytes"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"golang.org/x/crypto/bcrypt"

	"heddle/internal/atomicfile"
	"heddle/path"
)

func readUsers(file string) ([]user, time.Time, error) {
	what := "auth " + file
	info, err := os.Stat(file)
	if err != nil {
		return nil, time.Time{}, &path.Error{What: what, Why: "it cannot be read", Err: err, Hint: "heddle masque user add NAME --auth " + file + " makes it"}
	}
	if info.Mode().Perm()&0o077 != 0 {
		return nil, time.Time{}, &path.Error{What: what, Why: fmt.Sprintf("others can read it (mode %#o)", info.Mode().Perm()), Hint: "chmod 600 " + file}
	}
	if !info.Mode().IsRegular() || info.Size() > maxUsersFile {
		return nil, time.Time{}, &path.Error{What: what, Why: "it is no file of users"}
	}
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, time.Time{}, &path.Error{What: what, Why: "it cannot be read", Err: err}
	}
	list, err := parseUsers(data)
	if err != nil {
		return nil, time.Time{}, &path.Error{What: what, Why: err.Error(), Hint: "a line is NAME:HASH, as heddle masque user add or htpasswd -B makes it"}
	}
	return list, info.ModTime(), nil
}

// parseUsers reads lines of NAME:HASH and skips empty lines and those that begin with #. Its errors contain no hash.
func parseUsers(data []byte) ([]user, error) {
	var list []user
	lines := bufio.NewScanner(bytes.NewReader(data))
	for n := 1; lines.Scan(); n++ {
		line := strings.TrimSpace(lines.Text())
		if line == "" || line[0] == '#' {
			continue
		}
		name, hash, found := strings.Cut(line, ":")
		if !found || !userRule.MatchString(name) {
			return nil, fmt.Errorf("line %d does not begin with a name", n)
		}
		if slices.ContainsFunc(list, func(u user) bool { return u.name == name }) {
			return nil, fmt.Errorf("line %d names %s again", n, name)
		}
		if !validHash(hash) {
			return nil, fmt.Errorf("line %d holds no hash that is known here", n)
		}
		list = append(list, user{name, hash})
	}
	return list, lines.Err()
}

func validHash(hash string) bool {
	if digits, ok := strings.CutPrefix(hash, hashPrefix); ok {
		raw, err := hex.DecodeString(digits)
		return err == nil && len(raw) == sha256.Size
	}
	cost, err := bcrypt.Cost([]byte(hash))
	return err == nil && cost <= 14 // a higher cost could keep the proxy busy
}

// Add returns a token for a new user. The file only stores its hash.
func Add(file, name string) (token string, err error) {
	var random [tokenBytes]byte
	rand.Read(random[:])
	token = tokenPrefix + base64.RawURLEncoding.EncodeToString(random[:])
	sum := sha256.Sum256([]byte(token))
	return token, changeUsers(file, name, func(lines []string, at int) ([]string, error) {
		if at >= 0 {
			return nil, &path.Error{What: "user " + name, Why: "there is one already", Hint: "remove that one first, or choose another name"}
		}
		return append(lines, name+":"+hashPrefix+hex.EncodeToString(sum[:])), nil
	})
}

// Remove removes a user. Open flows continue.
func Remove(file, name string) error {
	return changeUsers(file, name, func(lines []string, at int) ([]string, error) {
		if at < 0 {
			return nil, &path.Error{What: "user " + name, Why: "there is none in " + file}
		}
		return slices.Delete(lines, at, at+1), nil
	})
}

// Names lists the users in the order of the file.
func Names(file string) ([]string, error) {
	list, _, err := readUsers(file)
	var names []string
	for _, u := range list {
		names = append(names, u.name)
	}
	return names, err
}

// changeUsers rewrites the file. at is the line of name, or -1. Comments are kept.
func changeUsers(file, name string, change func(lines []string, at int) ([]string, error)) error {
	if !userRule.MatchString(name) {
		return &path.Error{What: fmt.Sprintf("user %q", name), Why: "it is no name", Hint: "1 to 64 letters, digits, '.', '_' or '-', the first a letter or digit"}
	}
	var lines []string
	if _, err := os.Stat(file); err == nil {
		if _, _, err := readUsers(file); err != nil {
			return err
		}
		data, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if text := strings.TrimRight(string(data), "\n"); text != "" {
			lines = strings.Split(text, "\n")
		}
	}
	at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(strings.TrimSpace(l), name+":") })
	lines, err := change(lines, at)
	if err != nil {
		return err
	}
	return atomicfile.Write(file, []byte(strings.Join(lines, "\n")+"\n"), 0o600)
}
