package demo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"

	"heddle/path"
)

// target is one URL to fetch, and the file that it must equal.
type target struct{ url, file string }

// curl runs the machine's curl in some place.
type curl func(ctx context.Context, args ...string) *exec.Cmd

// fetch fetches a target and compares it byte for byte. It returns its length in bytes.
func (c curl) fetch(ctx context.Context, t target, into string) (int64, error) {
	out, err := c(ctx, "--silent", "--show-error", "--fail", "--ipv4", "--max-time", "90", "--output", into, t.url).CombinedOutput()
	if err != nil {
		return 0, &path.Error{What: "curl " + t.url, Why: string(bytes.TrimSpace(out)), Err: errors.Join(ctx.Err(), err)}
	}
	got, err := os.ReadFile(into)
	if err != nil {
		return 0, err
	}
	want, err := os.ReadFile(t.file)
	if err != nil {
		return 0, err
	}
	if !bytes.Equal(got, want) {
		return 0, fmt.Errorf("%s came in as %d bytes that are not the %d bytes of the file", t.url, len(got), len(want))
	}
	return int64(len(got)), nil
}

// The names of the web server. The first is read over HTTP, so without a tunnel its pages are visible; the others use
// HTTPS, so only their names are.
const (
	clinic = "clinic.example"
	bank   = "bank.example"
	files  = "files.example"
)

var names = []string{clinic, bank, files}

// allAt has all names at one address.
func allAt(addr netip.Addr) map[string]netip.Addr {
	all := map[string]netip.Addr{}
	for _, n := range names {
		all[n] = addr
	}
	return all
}

// targets returns some pages of a site, and its large file.
func targets(root string, pages []string) []target {
	var list []target
	for i, p := range pages[:min(len(pages), 8)] {
		base := "http://" + clinic + "/"
		if i%2 == 1 {
			base = "https://" + bank + "/"
		}
		at := p
		if p == "index.html" {
			at = "" // avoids net/http's redirect to the directory
		}
		list = append(list, target{base + at, filepath.Join(root, p)})
	}
	return append(list, target{"https://" + files + "/large.bin", filepath.Join(root, "large.bin")})
}
