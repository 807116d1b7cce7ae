// Command record makes dist/site-docs.db: it serves the site of package docsite in a lab world of one host, visits each page twice with
// Chromium there, and lets heddle import the HTTP archive. Run it as root at the top of the tree, on a machine without other work:
//
//	make build && go run ./lab/docsite/record --heddle bin/heddle
//
// It needs Debian's chromium, nodejs and npm. docs/site-docs.md is the data card.
package main

import (
	"context"
	_ "embed"
	"errors"
	"flag"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"heddle/lab"
	"heddle/lab/browser"
	"heddle/lab/docsite"
)

//go:embed record.mjs
var script string

// name is that of the site. Nobody owns it, so nobody takes the recording for a site of somebody.
const name = "www.example"

const about = "Heddle's own documentation as a website, recorded by lab/docsite/record with Chromium. Licence: Apache-2.0. For the lab: everybody has it. See docs/site-docs.md."

// patience bounds one page on a busy machine.
const patience = 2 * time.Minute

// prepared is how many answers with each picture are made before the browser starts. Each picture is on about so many pages.
const prepared = 12 * visits

// visits is how often each page is visited.
const visits = 2

func main() {
	lab.MaybeEnter()
	heddle := flag.String("heddle", "bin/heddle", "the binary that imports the archive")
	docs := flag.String("docs", "docs", "the directory of Markdown files and pictures")
	out := flag.String("out", "dist/site-docs.db", "the file to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGINT, syscall.SIGTERM)
	defer stop()
	if err := run(ctx, *heddle, *docs, *out); err != nil {
		fmt.Fprintln(os.Stderr, "record:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, heddle, docs, out string) (err error) {
	s, err := docsite.New(os.DirFS(docs), 1)
	if err != nil {
		return err
	}
	s.Prepare(prepared)
	temp, err := os.MkdirTemp("", "heddle-docsite-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(temp)
	archive := filepath.Join(temp, "visits.har")
	if err := visit(ctx, s, archive); err != nil {
		return err
	}
	for _, args := range [][]string{{"import", archive, "--out", out, "--about", about}, {"check", out}} {
		command := exec.CommandContext(ctx, heddle, append([]string{"disguise", "site"}, args...)...)
		command.Stdout, command.Stderr = os.Stdout, os.Stderr
		if err := command.Run(); err != nil {
			return fmt.Errorf("heddle disguise site %s: %w", args[0], err)
		}
	}
	return nil
}

// visit visits all pages of the site, several times, and writes an HTTP archive.
func visit(ctx context.Context, s *docsite.Site, archive string) (err error) {
	home := netip.MustParseAddr("127.0.0.1")
	in, err := lab.Up(ctx, lab.World{Name: "docsite", Hosts: []lab.HostSpec{{Name: "a"}}, Names: []lab.NameSpec{{Name: name, Addr: home}}}, lab.Options{})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, in.Down()) }()
	host := in.Host("a")
	var listener net.Listener
	if err := host.Do(func() (err error) {
		listener, err = net.Listen("tcp", netip.AddrPortFrom(home, 80).String())
		return err
	}); err != nil {
		return err
	}
	server := &http.Server{Handler: s, ReadHeaderTimeout: patience}
	go server.Serve(listener) //nolint:errcheck // Close ends it
	defer server.Close()
	var pages []string
	for _, target := range s.Paths() {
		pages = append(pages, "http://"+name+target)
	}
	order := map[string]any{"archive": archive, "timeout": patience.Milliseconds(), "pages": slices.Repeat(pages, visits), "lost": "http://" + name + "/nothing"}
	_, err = browser.Script{Text: script, Order: order,
		Args: []string{"--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--no-proxy-server", "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE " + name}}.Run(ctx, host)
	return err
}
