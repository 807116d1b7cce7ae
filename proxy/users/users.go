// Package users says who may use a proxy: a file of names with hashes of tokens and passwords. It bounds how often a source
// may show wrong ones.
//
// Do not use it for the secrets that this machine shows to others.
package users

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"errors"
	"net/http"
	"net/netip"
	"os"
	"regexp"
	"strings"
	"sync"
	"time"

	"golang.org/x/crypto/bcrypt"

	"heddle/internal/connlimit"
	"heddle/path"
)

const (
	tokenBytes    = 32
	tokenPrefix   = "heddle_"
	hashPrefix    = "sha256:"
	maxUsersFile  = 1 << 20
	maxCredential = 1024
	maxKnown      = 4096 // credentials that were checked, so that bcrypt costs once
	lookAgain     = time.Second
)

var userRule = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}$`)

// user is one line of the file, NAME:HASH. A hash is sha256:HEX of a token that this program made, or what
// `htpasswd -B` makes of a password (bcrypt).
type user struct {
	name string
	hash string
}

// Users are the ones whom a proxy serves, as a file lists them. It is read again when it has changed.
type Users struct {
	file string
	now  func() time.Time

	mu     sync.Mutex
	list   []user
	stamp  time.Time // of the file, as read
	looked time.Time
	key    [32]byte // makes digests that mean nothing outside this process
	known  map[[sha256.Size]byte]string
	slow   chan struct{} // holds a place for each bcrypt under way

	failures *connlimit.Failures
}

// Load reads the file. It fails where others than its owner may read it, or where it names nobody.
func Load(file string) (*Users, error) {
	u := &Users{file: file, now: time.Now, slow: make(chan struct{}, 2), failures: connlimit.NewFailures()}
	rand.Read(u.key[:])
	if err := u.read(); err != nil {
		return nil, err
	}
	if len(u.list) == 0 {
		return nil, &path.Error{What: "auth " + file, Why: "it names nobody, so nobody could use the proxy", Hint: "heddle masque user add NAME --auth " + file}
	}
	return u, nil
}

// LoadIfAny is [Load], and gives nil where no file is named.
func LoadIfAny(file string) (*Users, error) {
	if file == "" {
		return nil, nil
	}
	return Load(file)
}

// Count is how many users there are.
func (u *Users) Count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.list)
}

// read reads the file anew. u.mu is held, or nobody else knows of u.
func (u *Users) read() error {
	list, stamp, err := readUsers(u.file)
	if err != nil {
		return err
	}
	u.list, u.stamp, u.looked = list, stamp, u.now()
	u.known = map[[sha256.Size]byte]string{}
	return nil
}

// refresh reads the file where it has changed. Where it cannot be read, nobody is let in until it can. u.mu is held.
func (u *Users) refresh() {
	if now := u.now(); now.Sub(u.looked) < lookAgain {
		return
	}
	u.looked = u.now()
	if info, err := os.Stat(u.file); err == nil && info.ModTime().Equal(u.stamp) {
		return
	}
	if err := u.read(); err != nil {
		u.list, u.stamp, u.known = nil, time.Time{}, map[[sha256.Size]byte]string{}
	}
}

// errCredential says nothing of what is wrong with it.
var errCredential = errors.New("no such user, or another password")

// ErrBusy says that a source was wrong too often.
var ErrBusy = errors.New("too many wrong credentials")

// CheckHeader gives the name of the user whose credentials a request of HTTP holds. It fails with [ErrBusy] where the
// source, an address, was wrong too often.
func (u *Users) CheckHeader(from netip.Addr, h http.Header) (string, error) {
	return u.counted(from, func() (string, error) {
		name, secret, err := credential(h)
		if err != nil {
			return "", err
		}
		return u.check(name, secret)
	})
}

// Check gives the name of the user with a name and a secret, as [Users.CheckHeader] does.
func (u *Users) Check(from netip.Addr, name, secret string) (string, error) {
	return u.counted(from, func() (string, error) {
		if name == "" || len(name)+len(secret) > maxCredential {
			return "", errCredential
		}
		return u.check(name, secret)
	})
}

// Password checks what a client of SOCKS5 at an address shows; it is nil, which asks for nothing, where u is.
func (u *Users) Password(from netip.Addr) func(user, password string) error {
	if u == nil {
		return nil
	}
	return func(user, password string) error {
		_, err := u.Check(from, user, password)
		return err
	}
}

// counted counts a failure of the source before it is one, so that many tries at once count as many.
func (u *Users) counted(from netip.Addr, check func() (string, error)) (string, error) {
	if !u.failures.Take(from) {
		return "", ErrBusy
	}
	name, err := check()
	if err == nil {
		u.failures.GiveBack(from)
	}
	return name, err
}

func (u *Users) check(name, secret string) (string, error) {
	u.mu.Lock()
	u.refresh()
	list := u.list
	mac := hmac.New(sha256.New, u.key[:])
	mac.Write([]byte(name + "\x00" + secret))
	digest := [sha256.Size]byte(mac.Sum(nil))
	known, ok := u.known[digest]
	u.mu.Unlock()
	if ok {
		return known, nil
	}
	found, ok := u.find(list, name, secret)
	if !ok {
		return "", errCredential
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(u.known) < maxKnown {
		u.known[digest] = found
	}
	return found, nil
}

// credential reads Basic (RFC 7617) or Bearer (RFC 6750) from the field for proxies, or else the one for servers. A
// bearer has no name.
func credential(h http.Header) (name, secret string, err error) {
	value := h.Get("Proxy-Authorization")
	if value == "" {
		value = h.Get("Authorization")
	}
	scheme, rest, found := strings.Cut(value, " ")
	if !found || len(value) > maxCredential {
		return "", "", errCredential
	}
	switch strings.ToLower(scheme) {
	case "bearer":
		return "", rest, nil
	case "basic":
		raw, err := base64.StdEncoding.DecodeString(rest)
		name, secret, found := strings.Cut(string(raw), ":")
		if err != nil || !found || name == "" {
			return "", "", errCredential
		}
		return name, secret, nil
	}
	return "", "", errCredential
}

// find looks for the user. All tokens are compared, in constant time, whether one fits or not; a name that is absent
// costs as much as a wrong password.
func (u *Users) find(list []user, name, secret string) (string, bool) {
	sum := sha256.Sum256([]byte(secret))
	token := []byte(hashPrefix + hex.EncodeToString(sum[:]))
	found, stored := "", absentHash()
	for _, one := range list {
		fits := subtle.ConstantTimeCompare(token, []byte(strings.ToLower(one.hash))) == 1
		if fits && (name == "" || name == one.name) {
			found = one.name
		}
		if one.name == name && !strings.HasPrefix(one.hash, hashPrefix) {
			stored = []byte(one.hash)
		}
	}
	if found != "" || name == "" {
		return found, found != ""
	}
	u.slow <- struct{}{}
	defer func() { <-u.slow }()
	fits := bcrypt.CompareHashAndPassword(stored, []byte(secret)) == nil
	return name, fits
}

// absentCost is that of absentHash.
var absentCost = bcrypt.DefaultCost

// absentHash is compared with where there is no such user.
var absentHash = sync.OnceValue(func() []byte {
	var random [16]byte
	rand.Read(random[:])
	hash, err := bcrypt.GenerateFromPassword(random[:], absentCost)
	if err != nil {
		return nil // no password fits an empty hash
	}
	return hash
})
