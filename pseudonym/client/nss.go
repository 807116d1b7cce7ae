package client

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"software.sslmate.com/src/go-pkcs12"

	"heddle/internal/errhint"
	"heddle/pseudonym"
	"heddle/pseudonym/ca"
)

// ErrNoNSS says that the tools of NSS are not installed.
var ErrNoNSS = errors.New("it is not installed")

// NSSTools fails with [ErrNoNSS] if [Saved.WriteNSS] cannot work.
func NSSTools() error {
	for _, name := range []string{"certutil", "pk12util"} {
		if _, err := exec.LookPath(name); err != nil {
			return &errhint.Error{What: name, Hint: "apt-get install libnss3-tools", Err: ErrNoNSS}
		}
	}
	return nil
}

// WriteNSS puts the client's certificate with its key into an NSS database, a profile of Firefox or ~/.pki/nssdb of Chromium, and lets it trust
// the cloud's root. Its certificate is good for as long as that of a browser. It makes a database without a password where there is none. It fails with [ErrNoNSS].
func (s *Saved) WriteNSS(ctx context.Context, zone pseudonym.Zone, dir string) error {
	if err := NSSTools(); err != nil {
		return err
	}
	issuer := s.Name
	if s.Site == zone.Store() {
		issuer = string(zone) // the linker asks for it too
	}
	cert, err := ca.Browser(s.Site, issuer, s.key, time.Now(), time.Now().Add(ca.BrowserLife))
	if err != nil {
		return err
	}
	passphrase := rand.Text()
	content, err := pkcs12.Modern.Encode(s.key, cert, nil, passphrase)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return err
	}
	private, err := os.MkdirTemp("", "heddle-nss-") // of mode 0700
	if err != nil {
		return err
	}
	defer os.RemoveAll(private)
	files := map[string]string{"client.p12": string(content), "passphrase": passphrase, "empty": "\n"}
	for name, text := range files {
		files[name] = filepath.Join(private, name)
		if err := os.WriteFile(files[name], []byte(text), 0o600); err != nil {
			return err
		}
	}
	run := func(name string, args ...string) error {
		out, err := exec.CommandContext(ctx, name, append([]string{"-d", "sql:" + dir}, args...)...).CombinedOutput()
		switch {
		case err == nil:
			return nil
		case bytes.Contains(out, []byte("SEC_ERROR_BAD_PASSWORD")), bytes.Contains(out, []byte("password entered is incorrect")):
			return &errhint.Error{What: dir, Why: "it has a password", Hint: "import the files in " + s.Dir + " with the browser, or take its password away meanwhile", Err: err}
		}
		return &errhint.Error{What: dir, Why: name + " cannot write it", Hint: "close the browser, and check the rights of the directory", Err: fmt.Errorf("%w: %s", err, bytes.TrimSpace(out))}
	}
	if _, err := os.Stat(filepath.Join(dir, "cert9.db")); errors.Is(err, fs.ErrNotExist) {
		if err := run("certutil", "-N", "--empty-password"); err != nil {
			return err
		}
	}
	if err := run("pk12util", "-i", files["client.p12"], "-w", files["passphrase"], "-k", files["empty"]); err != nil {
		return err
	}
	return run("certutil", "-A", "-n", "Heddle "+s.Name, "-t", "C,,", "-i", s.RootFile(), "-f", files["empty"])
}
