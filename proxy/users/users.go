// Package users authenticates the users of a proxy by a file of names with hashes of tokens and passwords. It bounds how often
// a source may show wrong ones.
//
// Do not use it for the secrets that this machine shows to others.
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
	maxKnown      = 4096 // credentials that were checked, so that bcrypt costs once
	lookAgain     = time.Second
)

var userRule = regexp.MustCompile(`^[a-zA-Z0-9][a-zA-Z0-9_.-]{0,63}$`)

// user is one line of the file, NAME:HASH: sha256:HEX of a token of [Add], or a password's bcrypt as of `htpasswd -B`.
type user struct {
	name string
	hash string
}

// Users are the users of a proxy, as a file lists them. It is read again when it has changed.
type Users struct {
	file string
	now  func() time.Time

	mu     sync.Mutex
	list   []user
	stamp  time.Time // of the file, as read
	looked time.Time
	key    [32]byte // makes digests that mean nothing outside this process
	known  map[[sha256.Size]byte]bool
	slow   chan struct{} // holds a place for each bcrypt under way
	// checking holds the attempts that are being compared with passwords.
	checking map[attempt]*verdict

	failures *connlimit.Failures
}

// Load reads the file. It fails if others than its owner may read it, or if it names nobody.
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

// File is the name of a file of users in a setting that may be left out. An empty name in that setting is an error: a script with
// an unset variable would otherwise open a proxy to everybody.
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

// Type is of a flag's value.
func (*File) Type() string { return "string" }

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
	u.known = map[[sha256.Size]byte]bool{}
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
		u.list, u.stamp, u.known = nil, time.Time{}, map[[sha256.Size]byte]bool{}
	}
}

// errCredential says nothing of what is wrong with it.
var errCredential = errors.New("no such user, or another password")

// ErrBusy says that a source showed wrong passwords too often.
var ErrBusy = errors.New("too many wrong credentials")

// ErrNoCredential says that a request of HTTP has no credentials. Clients send one to learn which are wanted.
var ErrNoCredential = errors.New("no credentials")

// CheckHeader gives the name of the user whose credentials a request of HTTP holds. It fails with [ErrNoCredential] where
// it holds none, and as [Users.Check] does.
func (u *Users) CheckHeader(from netip.Addr, h http.Header) (string, error) {
	value := cmp.Or(h.Get("Proxy-Authorization"), h.Get("Authorization"))
	if value == "" {
		return "", ErrNoCredential
	}
	name, secret := credential(value)
	return u.check(from, name, secret)
}

// Check gives the name of the user with a name and a secret. It fails with [ErrBusy] where the source, an address, was
// wrong too often: then it checks no password. It always accepts a token, which nobody can guess, so that strangers at the
// same address, such as other users of this machine, cannot lock its holder out.
func (u *Users) Check(from netip.Addr, name, secret string) (string, error) {
	if name == "" || len(name)+len(secret) > maxCredential {
		name, secret = "", ""
	}
	return u.check(from, name, secret)
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

// attempt is a source and a digest of what it shows.
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

// check compares what a source shows with the tokens, and then with the passwords. Nobody has an empty name and secret.
// Equal attempts of one source at one time are one: a browser that opens many connections at once does not guess.
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
	case !u.failures.Take(from): // counted before it is a failure, so that many tries at once count as many
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

// digest is what a name and a secret are remembered by.
func (u *Users) digest(name, secret string) [sha256.Size]byte {
	mac := hmac.New(sha256.New, u.key[:])
	mac.Write([]byte(name + "\x00" + secret))
	return [sha256.Size]byte(mac.Sum(nil))
}

// fits reports whether a user of the list has this password. known remembers those that were right for this list.
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

// credential reads Basic (RFC 7617) or Bearer (RFC 6750). A bearer has no name. What is neither has no name and no secret.
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

// holder gives the user whose token the secret is, or "". All tokens are compared, in constant time, whether one fits or not.
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

// hasPassword reports whether a user has a password. A name that is absent costs as much as a wrong password.
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
