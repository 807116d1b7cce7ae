package peer

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"heddle/lab"
)

// Website is a recorded website, which web covers imitate.
type Website struct {
	File  string
	Host  string   // of its origin
	Pages []string // targets of its pages
}

// RecordedWebsite asks heddle what is in a recorded website.
func RecordedWebsite(ctx context.Context, heddle, file string) (*Website, error) {
	out, err := exec.CommandContext(ctx, heddle, "disguise", "site", "show", "--json", file).Output()
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = errors.New(strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, fmt.Errorf("website %s: %w", file, err)
	}
	var shown struct {
		Origin string `json:"origin"`
		Pages  []struct {
			Document int `json:"document"` // one of Objects
		} `json:"pages"`
		Objects []struct {
			URL string `json:"url"`
		} `json:"objects"`
	}
	if err := json.Unmarshal(out, &shown); err != nil || len(shown.Pages) == 0 {
		return nil, fmt.Errorf("website %s: it has no pages (%v)", file, err)
	}
	at, err := url.Parse(shown.Origin)
	if err != nil {
		return nil, fmt.Errorf("website %s: %w", file, err)
	}
	w := &Website{File: file, Host: at.Hostname()}
	for _, p := range shown.Pages {
		w.Pages = append(w.Pages, shown.Objects[p.Document].URL)
	}
	return w, nil
}

// Cover returns the web cover name of a bridge, and that of its clients. With https it writes a certificate into dir, which clients trust by
// a pin.
func (w *Website) Cover(name, dir string) (bridge, client, certificate string, err error) {
	client = name + ":site=" + w.File
	if name != "https" {
		return client, client, "", nil
	}
	certificate, key := filepath.Join(dir, "certificate.pem"), filepath.Join(dir, "key.pem")
	if err := SelfSigned(certificate, key, []string{w.Host}, nil); err != nil {
		return "", "", "", err
	}
	pin, err := KeyHash(certificate)
	client += ":pin=" + base64.RawURLEncoding.EncodeToString(pin)
	return client + ":certificate=" + certificate + ":key=" + key, client, certificate, err
}

// Disguise is a bridge of heddle that no Tor started.
type Disguise struct {
	*Process
	At     netip.AddrPort
	Client string // file for `heddle disguise dial`

	line string
}

// StartDisguise starts `heddle disguise serve` with a cover at a port of a host, and flags that say where it leads.
func StartDisguise(ctx context.Context, host *lab.Host, heddle, cover string, port uint16, flags ...string) (*Disguise, error) {
	d := &Disguise{At: netip.AddrPortFrom(host.Addrs()[0], port)}
	dir := filepath.Join(host.Dir(), fmt.Sprint("disguise-", port))
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	key := filepath.Join(dir, "bridge.pem")
	d.Client = filepath.Join(dir, "client.toml")
	name, _, _ := strings.Cut(cover, ":certificate=")
	keys := []string{"disguise", "keys", "--address", d.At.String(), "--identity", key, "--cover", name}
	out, err := host.Command(ctx, heddle, keys...).Output()
	if err == nil {
		_, err = host.Command(ctx, heddle, append(keys, "--client", d.Client)...).Output()
	}
	if err != nil {
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			err = errors.New(strings.TrimSpace(string(exit.Stderr)))
		}
		return nil, fmt.Errorf("heddle disguise keys: %w", err)
	}
	_, d.line, _ = strings.Cut(strings.TrimSpace(string(out)), " ")
	d.Process, err = Start(ctx, host, heddle, append([]string{"disguise", "serve", "--identity", key, "--state", filepath.Join(dir, "state"), "--cover", cover,
		"--listen", d.At.String()}, flags...)...)
	if err != nil {
		return nil, err
	}
	_, err = d.OrStop(d.AwaitLog(ctx, "listening on"))
	return d, err
}

// Line is what follows the word Bridge in the torrc of a client, for a bridge that leads to the ORPort of another one.
func (d *Disguise) Line(of *TorBridge) string {
	return strings.Replace(d.line, d.At.String(), d.At.String()+" "+of.fingerprint, 1)
}
