// Package users authenticates the users of a proxy by a file of names with hashes of tokens or passwords. It limits failed
// attempts per source.
package users

import (
	"cmp"
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
	maxKnown      = 4096 // verified credentials, to avoid repeated bcrypt
	lookAgain     = time.Second
)

var userRule = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}$`)

// user is a line NAME:HASH, where HASH is sha256:HEX of a token of [Add], or a bcrypt hash as of `htpasswd -B`.
type user struct {
	name string
	hash string
}

// Users are the users in a file, which is read again when it changes.
type Users struct {
	file string
	now  func() time.Time

	mu       sync.Mutex
	list     []user
	stamp    time.Time // modification time of the file when read
	looked   time.Time
	key      [32]byte // keys the digests, so that they are useless outside this process
	known    map[[sha256.Size]byte]bool
	slow     chan struct{}        // holds a token for each running bcrypt
	checking map[attempt]*verdict // attempts being compared with passwords

	failures *connlimit.Failures
}

// Load reads the file. It fails if others than the owner may read it, or if it names nobody.
func Load(file string) (*Users, error) {
	u := &Users{file: file, now: time.Now, slow: make(chan struct{}, 2), checking: map[attempt]*verdict{}, failures: connlimit.NewFailures()}
	rand.Read(u.key[:])
	if err := u.read(); err != nil {
		return nil, err
	}
	if len(u.list) == 0 {
		return nil, &path.Error{What: "auth " + file, Why: "it names nobody, so nobody could use the proxy", Hint: "heddle masque user add NAME --auth " + file}
	}
	return u, nil
}

// File is the name of a users file in an optional setting. Setting an empty name is an error: a script with an unset
// variable would otherwise open a proxy to everybody.
type File string

// Load is [Load], and returns nil if the setting was left out.
func (f File) Load() (*Users, error) {
	if f == "" {
		return nil, nil
	}
	return Load(string(f))
}

// Set sets the name.
func (f *File) Set(text string) error {
	if text == "" {
		return &path.Error{What: "it names no file", Hint: "name a file, or leave it out to let everybody in without a password"}
	}
	*f = File(text)
	return nil
}

// String returns the name.
func (f *File) String() string { return string(*f) }

// Type implements pflag.Value.
func (*File) Type() string { return "string" }

// Count returns the number of users.
func (u *Users) Count() int {
	u.mu.Lock()
	defer u.mu.Unlock()
	return len(u.list)
}

// read reads the file. u.mu is held, or u is not shared yet.
func (u *Users) read() error {
	list, stamp, err := readUsers(u.file)
	if err != nil {
		return err
	}
	u.list, u.stamp, u.looked = list, stamp, u.now()
	u.known = map[[sha256.Size]byte]bool{}
	return nil
}

// refresh reads the file if it has changed. While it is unreadable, nobody is admitted. u.mu is held.
func (u *Users) refresh() {
	if now := u.now(); now.Sub(u.looked) < lookAgain {
		return
	}
	u.looked = u.now()
	if info, err := os.Stat(u.file); err == nil && info.ModTime().Equal(u.stamp) {
		return
	}
	if err := u.read(); err != nil {
		u.list, u.stamp, u.known = nil, time.Time{}, map[[sha256.Size]byte]bool{}
	}
}

// errCredential does not tell whether the name or the password is wrong.
var errCredential = errors.New("no such user, or another password")

// ErrBusy means that a source showed wrong passwords too often.
var ErrBusy = errors.New("too many wrong credentials")

// ErrNoCredential means that an HTTP request has no credentials. Clients send one to learn which are wanted.
var ErrNoCredential = errors.New("no credentials")

// CheckHeader returns the user whose credentials an HTTP request holds. It fails with [ErrNoCredential] if it holds none, or
// as [Users.Check] does.
func (u *Users) CheckHeader(from netip.Addr, h http.Header) (string, error) {
	value := cmp.Or(h.Get("Proxy-Authorization"), h.Get("Authorization"))
	if value == "" {
		return "", ErrNoCredential
	}
	name, secret := credential(value)
	return u.check(from, name, secret)
}

// Check returns the user with a name and a secret. It fails with [ErrBusy] and checks no password if the source failed too
// often. It always accepts a token, which nobody can guess, so that strangers at the same address, such as other users of
// this machine, cannot lock out its holder.
func (u *Users) Check(from netip.Addr, name, secret string) (string, error) {
	if name == "" || len(name)+len(secret) > maxCredential {
		name, secret = "", ""
	}
	return u.check(from, name, secret)
}

// Password returns the check of a SOCKS5 client at an address, or nil, which requires no password, if u is nil.
func (u *Users) Password(from netip.Addr) func(user, password string) error {
	if u == nil {
		return nil
	}
	return func(user, password string) error {
		_, err := u.Check(from, user, password)
		return err
	}
}

// attempt is a source and a digest of its credentials.
type attempt struct {
	from   netip.Addr
	digest [sha256.Size]byte
}

// verdict is the result of an attempt, once done is closed.
type verdict struct {
	done chan struct{}
	name string
	err  error
}

// check compares credentials with the tokens and then the passwords. An empty name and secret never match. Equal concurrent
// attempts of one source count once: a browser that opens many connections at once is not guessing.
func (u *Users) check(from netip.Addr, name, secret string) (string, error) {
	u.mu.Lock()
	u.refresh()
	list, known := u.list, u.known
	a := attempt{connlimit.Source(from), u.digest(name, secret)}
	u.mu.Unlock()
	if found := holder(list, name, secret); found != "" {
		return found, nil
	}
	u.mu.Lock()
	if running := u.checking[a]; running != nil {
		u.mu.Unlock()
		<-running.done
		return running.name, running.err
	}
	v := &verdict{done: make(chan struct{})}
	u.checking[a] = v
	u.mu.Unlock()
	switch {
	case !u.failures.Take(from): // counted before the result, so that concurrent attempts count too
		v.err = ErrBusy
	case u.fits(list, known, a.digest, name, secret):
		u.failures.GiveBack(from)
		v.name = name
	default:
		v.err = errCredential
	}
	u.mu.Lock()
	delete(u.checking, a)
	u.mu.Unlock()
	close(v.done)
	return v.name, v.err
}

// digest is the key under which a name and a secret are cached.
func (u *Users) digest(name, secret string) [sha256.Size]byte {
	mac := hmac.New(sha256.New, u.key[:])
	mac.Write([]byte(name + "\x00" + secret))
	return [sha256.Size]byte(mac.Sum(nil))
}

// fits reports whether a user of the list has this password. known caches passwords that were right for this list.
func (u *Users) fits(list []user, known map[[sha256.Size]byte]bool, digest [sha256.Size]byte, name, secret string) bool {
	u.mu.Lock()
	ok := known[digest]
	u.mu.Unlock()
	if ok || name == "" || !u.hasPassword(list, name, secret) {
		return ok
	}
	u.mu.Lock()
	defer u.mu.Unlock()
	if len(known) < maxKnown {
		known[digest] = true
	}
	return true
}

// credential reads Basic (RFC 7617) or Bearer (RFC 6750), which has no name. Anything else has neither name nor secret.
func credential(value string) (name, secret string) {
	scheme, rest, _ := strings.Cut(value, " ")
	if len(value) > maxCredential {
		return "", ""
	}
	switch strings.ToLower(scheme) {
	case "bearer":
		return "", rest
	case "basic":
		raw, err := base64.StdEncoding.DecodeString(rest)
		if name, secret, found := strings.Cut(string(raw), ":"); err == nil && found && name != "" {
			return name, secret
		}
	}
	return "", ""
}

// holder returns the user whose token is secret, or "". It compares all tokens in constant time, whether one fits or not.
func holder(list []user, name, secret string) (found string) {
	sum := sha256.Sum256([]byte(secret))
	token := []byte(hashPrefix + hex.EncodeToString(sum[:]))
	for _, one := range list {
		fits := subtle.ConstantTimeCompare(token, []byte(strings.ToLower(one.hash))) == 1
		if fits && secret != "" && (name == "" || name == one.name) {
			found = one.name
		}
	}
	return found
}

// hasPassword reports whether a user has a password. An unknown name takes as long as a wrong password.
func (u *Users) hasPassword(list []user, name, secret string) bool {
	stored := absentHash()
	for _, one := range list {
		if one.name == name && !strings.HasPrefix(one.hash, hashPrefix) {
			stored = []byte(one.hash)
		}
	}
	u.slow <- struct{}{}
	defer func() { <-u.slow }()
	return bcrypt.CompareHashAndPassword(stored, []byte(secret)) == nil
}

var absentCost = bcrypt.DefaultCost

// absentHash is compared if the user does not exist.
var absentHash = sync.OnceValue(func() []byte {
	var random [16]byte
	rand.Read(random[:])
	hash, err := bcrypt.GenerateFromPassword(random[:], absentCost)
	if err != nil {
		return nil // no password fits an empty hash
	}
	return hash
})
