package browser

import (
	"cmp"
	"context"
	"crypto/tls"
	_ "embed"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"heddle/lab"
	"heddle/lab/peer"
	"heddle/path"
)

//go:embed steps.mjs
var stepsScript string

// User is a person with Chromium. Her certificates and her profile last from one [User.Do] to the next.
type User struct {
	// Home keeps them.
	Home string
	// Scripts says whether pages may run any.
	Scripts bool
	Args    []string // of Chromium, beside the usual ones
	Width   int      // of the window, in CSS pixels; 0 is 720
	Dark    bool     // she prefers dark pages
	// Policies are more of those that an administrator sets.
	Policies map[string]any
}

// stepPatience bounds one step on a busy machine.
const stepPatience = 2 * time.Minute

// Step is something that a user does.
type Step struct {
	Open     string `json:"open,omitempty"`     // a URL to open
	Gone     string `json:"gone,omitempty"`     // a URL that soon cannot be opened any more
	Register string `json:"register,omitempty"` // a site to enter into the form of a cloud's store
	Click    string `json:"click,omitempty"`    // the text of a link or a button
	// Keys are pressed one after the other, then Type is typed, and then Press is the key that leads to another page. [Seen.Focus] says where Keys led.
	Keys    []string `json:"keys,omitempty"`
	Type    string   `json:"type,omitempty"`
	Press   string   `json:"press,omitempty"`
	Fresh   bool     `json:"fresh,omitempty"`   // empty the cache before anything else
	Title   string   `json:"title,omitempty"`   // then wait until the title begins so
	Settled bool     `json:"settled,omitempty"` // then wait until the page defence has nothing more to fetch
	Shot    string   `json:"shot,omitempty"`    // then make a picture, a PNG file
	Look    bool     `json:"look,omitempty"`    // then fill in [Seen.Look]
	Show    string   `json:"show,omitempty"`    // the name under which [User.Do] returns what the user sees then
}

// Seen is what a user saw.
type Seen struct {
	Error            string // why the step failed, or empty
	URL, Title, Text string
	Links            map[string]string // URLs by their texts
	Passphrase       string            // that the page shows
	Files            map[string][]byte // that the page offers, see [User.Take]
	// Milliseconds is how long the page took from the beginning of the navigation to the end of its load event.
	Milliseconds float64
	Worker       bool  // a Service Worker had the page
	Had          []int // pieces of each page that the page defence fetched, if it has settled
	Late         []int // those of them without content that came after a pause
	Focus        []Focus
	Look         Look
}

// Focus is what a key led to.
type Focus struct {
	Name    string // of the control, as it is read out
	Visible bool   // some of it is in the window, and it has an outline that stands out
}

// Look is how a page looks.
type Look struct {
	Wider    float64 // than the window, in CSS pixels
	Paper    string  // the background
	Contrast float64 // the least of any text with what is behind it (WCAG 2.2)
	Faintest string  // that text
	// Small are controls lower or narrower than 44 CSS pixels, and links outside of sentences lower or narrower than 24 (WCAG 2.2, 2.5.5 and 2.5.8).
	Small []string
	// Broken are words of 20 letters at most that do not stand on one line.
	Broken []string
}

// UserSupported returns nil, or an error that names what [NewUser] misses and wraps [peer.ErrMissing].
func UserSupported() error {
	if err := Supported(); err != nil {
		return err
	}
	if _, err := exec.LookPath("certutil"); err != nil {
		return &path.Error{What: "certutil", Hint: "apt-get install libnss3-tools", Err: peer.ErrMissing}
	}
	return nil
}

// NewUser makes a user without certificates, in a directory that it makes. It fails as [UserSupported] does.
func NewUser(ctx context.Context, home string) (*User, error) {
	if err := UserSupported(); err != nil {
		return nil, err
	}
	u := &User{Home: home}
	if err := os.MkdirAll(u.keys(), 0o700); err != nil {
		return nil, err
	}
	return u, u.tool(ctx, "certutil", "-N", "--empty-password")
}

// keys is where Chromium on Linux has its certificates.
func (u *User) keys() string { return filepath.Join(u.Home, ".pki", "nssdb") }

func (u *User) tool(ctx context.Context, name string, args ...string) error {
	out, err := exec.CommandContext(ctx, name, append([]string{"-d", "sql:" + u.keys()}, args...)...).CombinedOutput()
	if err != nil {
		err = fmt.Errorf("%s: %w: %s", name, err, out)
	}
	return err
}

// Trust lets the user trust a root certificate or one that signed itself, a PEM file, under a name.
func (u *User) Trust(ctx context.Context, name, file string) error {
	return u.tool(ctx, "certutil", "-A", "-n", name, "-t", "CP,,", "-i", file)
}

// Take imports the PKCS #12 files that a page offered, by the passphrase that it showed.
func (u *User) Take(ctx context.Context, s Seen) error {
	for _, content := range s.Files {
		if err := u.importFile(ctx, content, s.Passphrase); err != nil {
			return err
		}
	}
	return nil
}

func (u *User) importFile(ctx context.Context, content []byte, passphrase string) error {
	f, err := os.CreateTemp(u.Home, "*.p12")
	if err != nil {
		return err
	}
	defer os.Remove(f.Name())
	if err := os.WriteFile(f.Name(), content, 0o600); err != nil {
		f.Close()
		return err
	}
	if err := f.Close(); err != nil {
		return err
	}
	return u.tool(ctx, "pk12util", "-i", f.Name(), "-W", passphrase)
}

// Own imports a certificate of the user's and its key, PEM files.
func (u *User) Own(ctx context.Context, certificate, key string) error {
	pair, err := tls.LoadX509KeyPair(certificate, key)
	if err != nil {
		return err
	}
	const passphrase = "for a moment"
	content, err := pkcs12.Modern.Encode(pair.PrivateKey, pair.Leaf, nil, passphrase)
	if err != nil {
		return err
	}
	return u.importFile(ctx, content, passphrase)
}

// Do starts Chromium for some steps, and returns what the user saw by the names in Show. A step that fails is an error if nothing is to
// be shown of it.
func (u *User) Do(ctx context.Context, host *lab.Host, steps ...Step) (map[string]Seen, error) {
	// A user picks a certificate once for each site. The policy picks it for her, of those that the server asks for.
	const choice = `{"pattern": "*", "filter": {}}`
	policies := map[string]any{"AutoSelectCertificateForUrls": []string{choice}}
	maps.Copy(policies, u.Policies)
	scheme := "light"
	if u.Dark {
		scheme = "dark"
	}
	out, err := Script{Text: stepsScript, Home: u.Home, Policies: policies,
		Args: slices.Concat(usualArgs, u.Args),
		Order: map[string]any{"profile": filepath.Join(u.Home, "profile"), "timeout": stepPatience.Milliseconds(), "steps": steps, "scripts": u.Scripts,
			"viewport": map[string]int{"width": cmp.Or(u.Width, 720), "height": 360}, "colorScheme": scheme}}.Run(ctx, host)
	if err != nil {
		return nil, err
	}
	var seen map[string]Seen
	if err := json.Unmarshal(out, &seen); err != nil {
		return nil, fmt.Errorf("what steps.mjs printed: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return seen, nil
}
