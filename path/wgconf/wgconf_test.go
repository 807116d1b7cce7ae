package wgconf

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"heddle/path"
)

var update = flag.Bool("update", false, "write the golden files anew")

// outcome is what a golden file holds: the configuration with keys hidden, or the error with its hint.
func outcome(c *Config, err error) string {
	if err != nil {
		var e *path.Error
		if !errors.As(err, &e) {
			return "error without hint: " + err.Error()
		}
		return fmt.Sprintf("error: %v\nhint: %s\n", e, e.Hint)
	}
	out, err := json.MarshalIndent(c, "", "  ")
	if err != nil {
		return err.Error()
	}
	return string(out) + "\n"
}

func TestParseGolden(t *testing.T) {
	files, err := filepath.Glob("testdata/*.conf")
	if err != nil || len(files) == 0 {
		t.Fatal("no test data", err)
	}
	for _, file := range files {
		name := strings.TrimSuffix(filepath.Base(file), ".conf")
		t.Run(name, func(t *testing.T) {
			data, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			config, err := Parse(name+".conf", data)
			if bad := strings.HasPrefix(name, "bad-"); bad != (err != nil) {
				t.Fatalf("error is %v", err)
			}
			got := outcome(config, err)
			golden := strings.TrimSuffix(file, ".conf") + ".golden"
			if *update {
				if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			want, err := os.ReadFile(golden)
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(string(want), got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// testKey is base64 of 32 equal bytes.
func testKey(b byte) string {
	return base64.StdEncoding.EncodeToString(bytes.Repeat([]byte{b}, 32))
}

func base64Of(k Key) string {
	b := k.Bytes()
	return base64.StdEncoding.EncodeToString(b[:])
}

func TestKeysAreRead(t *testing.T) {
	data, err := os.ReadFile("testdata/everything.conf")
	if err != nil {
		t.Fatal(err)
	}
	c, err := Parse("everything.conf", data)
	if err != nil {
		t.Fatal(err)
	}
	for name, pair := range map[string][2]string{
		"private":   {base64Of(c.Interface.PrivateKey), testKey(0x11)},
		"public":    {base64Of(c.Peer.PublicKey), testKey(0x22)},
		"preshared": {base64Of(c.Peer.PresharedKey), testKey(0x33)},
		"hex":       {c.Interface.PrivateKey.Hex(), strings.Repeat("11", 32)},
	} {
		if pair[0] != pair[1] {
			t.Errorf("%s key: got %s, want %s", name, pair[0], pair[1])
		}
	}
}

func TestKeyNeverShows(t *testing.T) {
	key, err := ParseKey(testKey(0x5a))
	if err != nil {
		t.Fatal(err)
	}
	config := Config{Interface: Interface{PrivateKey: key}, Peer: Peer{PresharedKey: key}}
	var out bytes.Buffer
	for _, verb := range []string{"%v", "%+v", "%#v", "%s", "%q", "%x", "%X", "%d", "%o", "%b"} {
		fmt.Fprintf(&out, verb+"\n", key)
		fmt.Fprintf(&out, verb+"\n", &key)
		fmt.Fprintf(&out, verb+"\n", config)
	}
	for _, h := range []slog.Handler{slog.NewTextHandler(&out, nil), slog.NewJSONHandler(&out, nil)} {
		slog.New(h).Info("x", "key", key, "config", config, "pointer", &config)
	}
	if err := json.NewEncoder(&out).Encode(config); err != nil {
		t.Fatal(err)
	}
	for _, secret := range []string{testKey(0x5a), strings.Repeat("5a", 32), strings.Repeat("5A", 32), "90 90", "0x5a", "132132", "1011010"} {
		if strings.Contains(out.String(), secret) {
			t.Errorf("%q shows in:\n%s", secret, out.String())
		}
	}
	if !strings.Contains(out.String(), redacted) {
		t.Error("nothing was printed")
	}
}

func TestErrorsNeverShowKeys(t *testing.T) {
	key := testKey(0x5a)
	for _, text := range []string{
		"[Interface]\n" + key + "\n",
		"[Interface]\n" + strings.TrimRight(key, "=") + " = 1\n",
		"[Interface]\nPrivateKey = " + key + "A\n",
		"[Interface]\nPrivateKey = x" + key + "\n",
		"[Interface]\nAddress = " + key + "\n",
		"[Interface]\nMTU = " + key + "\n",
		"[Interface]\nDNS = " + key + "\n",
		"[" + key + "]\nPrivateKey = " + key + "\n",
	} {
		_, err := Parse("x.conf", []byte(text))
		if err == nil {
			t.Fatalf("no error for %q", text)
		}
		if strings.Contains(outcome(nil, err), key[:20]) {
			t.Errorf("the error repeats the key: %v", err)
		}
	}
}

func TestFullTunnel(t *testing.T) {
	for text, want := range map[string]bool{
		"0.0.0.0/0":                   true,
		"::/0":                        true,
		"0.0.0.0/1 128.0.0.0/1":       true,
		"::/1 8000::/1":               true,
		"0.0.0.0/1":                   false,
		"10.0.0.0/8 fd00::/8":         false,
		"128.0.0.0/1 ::/1 10.0.0.0/8": false,
	} {
		var c Config
		for field := range strings.FieldsSeq(text) {
			c.Peer.AllowedIPs = append(c.Peer.AllowedIPs, netip.MustParsePrefix(field))
		}
		if got := c.FullTunnel(); got != want {
			t.Errorf("%s: got %v", text, got)
		}
	}
}

func TestLoad(t *testing.T) {
	good, err := os.ReadFile("testdata/plain.conf")
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	write := func(name string, mode os.FileMode) string {
		file := filepath.Join(dir, name)
		if err := os.WriteFile(file, good, 0o600); err != nil {
			t.Fatal(err)
		}
		if err := os.Chmod(file, mode); err != nil {
			t.Fatal(err)
		}
		return file
	}
	c, err := Load(write("office.conf", 0o600))
	if err != nil || c.Peer.Endpoint != "vpn.example.com:51820" {
		t.Fatalf("got %v, %v", c, err)
	}
	for name, test := range map[string]struct{ file, want string }{
		"group can read":  {write("group.conf", 0o640), "chmod 600"},
		"others can read": {write("others.conf", 0o604), "chmod 600"},
		"directory":       {dir, "it is a directory"},
		"absent":          {filepath.Join(dir, "absent.conf"), "no such file"},
	} {
		if _, err := Load(test.file); err == nil || !strings.Contains(outcome(nil, err), test.want) {
			t.Errorf("%s: got %v, want %q", name, err, test.want)
		}
	}
}

func TestNameOf(t *testing.T) {
	for file, want := range map[string]string{"office.conf": "office", "/etc/wireguard/a_b=c+d.e-f.conf": "a_b=c+d.e-f", "x": "x"} {
		if got, err := NameOf(file); err != nil || got != want {
			t.Errorf("%s: got %q, %v", file, got, err)
		}
	}
	for _, file := range []string{"my office.conf", "..", ".", ".conf", "é.conf", strings.Repeat("x", 65) + ".conf"} {
		if got, err := NameOf(file); err == nil {
			t.Errorf("%s: got %q, want an error", file, got)
		}
	}
}

func TestFind(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.WriteFile("office.conf", nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for arg, want := range map[string]string{"office": "office.conf", "./x": "./x", "x.conf": "x.conf"} {
		if got, err := Find(arg); err != nil || got != want {
			t.Errorf("%s: got %q, %v", arg, got, err)
		}
	}
	if _, err := Find("heddle-test-absent"); err == nil || !strings.Contains(err.Error(), "/etc/wireguard/heddle-test-absent.conf") {
		t.Errorf("got %v", err)
	}
}

func FuzzParse(f *testing.F) {
	files, _ := filepath.Glob("testdata/*.conf")
	for _, file := range files {
		data, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("fuzz.conf", data)
		if err != nil {
			if _, ok := errors.AsType[*path.Error](err); !ok {
				t.Fatalf("error of type %T: %v", err, err)
			}
			return
		}
		if c.Interface.PrivateKey.IsZero() || c.Peer.PublicKey.IsZero() || c.Peer.Endpoint == "" ||
			len(c.Interface.Addresses) == 0 || len(c.Peer.AllowedIPs) == 0 {
			t.Fatalf("accepted an incomplete file: %+v", c)
		}
		for _, p := range append(c.Interface.Addresses, c.Peer.AllowedIPs...) {
			if !p.IsValid() {
				t.Fatalf("invalid prefix in %+v", c)
			}
		}
	})
}
