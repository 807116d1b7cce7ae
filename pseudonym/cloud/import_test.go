package cloud

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// openssl makes an intermediate as the documentation says, for the key in a file.
func openssl(t *testing.T, dir string, args ...string) {
	t.Helper()
	cmd := exec.Command("openssl", args...)
	cmd.Dir = dir
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("openssl %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// An operator's own CA, made with openssl, signs the intermediate of a cloud, and a new one later.
func TestImport(t *testing.T) {
	if _, err := exec.LookPath("openssl"); err != nil {
		t.Skip("typed skip:", err)
	}
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	const ec = "ec_paramgen_curve:P-256"
	openssl(t, dir, "req", "-x509", "-newkey", "ec", "-pkeyopt", ec, "-nodes", "-keyout", "root-key.pem", "-out", "root.pem", "-subj", "/CN=Operator", "-days", "100",
		"-addext", "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign")
	openssl(t, dir, "req", "-new", "-newkey", "ec", "-pkeyopt", ec, "-nodes", "-keyout", "key.pem", "-out", "request.pem", "-subj", "/CN=Pseudonyms")
	if err := os.Chmod(at("key.pem"), 0o600); err != nil {
		t.Fatal(err)
	}
	signed := func(name, constraints string) string {
		t.Helper()
		extensions := "basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign\n" + constraints
		if err := os.WriteFile(at(name+".cnf"), []byte(extensions), 0o600); err != nil {
			t.Fatal(err)
		}
		openssl(t, dir, "x509", "-req", "-in", "request.pem", "-CA", "root.pem", "-CAkey", "root-key.pem", "-CAcreateserial", "-days", "50", "-extfile", name+".cnf", "-out", name+".pem")
		var chain []byte
		for _, one := range []string{name + ".pem", "root.pem"} {
			text, err := os.ReadFile(at(one))
			if err != nil {
				t.Fatal(err)
			}
			chain = append(chain, text...)
		}
		if err := os.WriteFile(at(name+"-chain.pem"), chain, 0o600); err != nil {
			t.Fatal(err)
		}
		return at(name + "-chain.pem")
	}
	limit := "nameConstraints=critical,permitted;DNS:" + string(testZone)
	wide, half := signed("wide", ""), signed("half", limit)
	good := signed("good", limit+",excluded;IP:0.0.0.0/0.0.0.0,excluded;IP:0:0:0:0:0:0:0:0/0:0:0:0:0:0:0:0")
	home, now := at("cloud"), time.Now()
	for chain, why := range map[string]string{wide: "more than", half: "addresses", at("nothing.pem"): "cannot be read"} {
		if err := Import(home, testZone, at("key.pem"), chain, now); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%s: %v", why, err)
		}
	}
	if err := Import(home, testZone, at("root-key.pem"), good, now); err == nil {
		t.Error("with another key")
	}
	if _, err := os.Stat(filepath.Join(home, IssuingKey)); err == nil {
		t.Error("a refused import left a key")
	}
	if err := Import(home, testZone, at("key.pem"), good, now); err != nil {
		t.Fatal(err)
	}
	if err := Import(home, testZone, at("key.pem"), good, now); err == nil || !strings.Contains(err.Error(), "has keys already") {
		t.Errorf("again: %v", err)
	}
	issuer, root, err := readIssuer(home, testZone, now)
	if err != nil || root.Subject.CommonName != "Operator" || len(issuer.Chain()) != 1 {
		t.Fatalf("%v, %v", root, err)
	}
	if _, err := Renew(home, testZone, now); err == nil {
		t.Error("renewed without the root's key")
	}
	later := signed("later", limit+",excluded;IP:0.0.0.0/0.0.0.0,excluded;IP:0:0:0:0:0:0:0:0/0:0:0:0:0:0:0:0")
	if until, err := ImportRenewed(home, testZone, at("key.pem"), later, time.Now()); err != nil || until.Before(now) {
		t.Errorf("%v, %v", until, err)
	}
	if _, err := ImportRenewed(home, testZone, at("key.pem"), wide, time.Now()); err == nil {
		t.Error("renewed by one that may sign for more")
	}
	if again, _, err := readIssuer(home, testZone, time.Now()); err != nil || string(again.Chain()[0]) == string(issuer.Chain()[0]) {
		t.Errorf("the new one is not used, %v", err)
	}
}
