package disguise

import (
	"cmp"
	"context"
	"fmt"
	"net"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/disguise/cover/web/browser"
	"heddle/internal/atomicfile"
	"heddle/path"
)

type helloFlags struct {
	Listen string `flag:"listen" help:"where the browser connects to, <HOST:PORT>; port 0 is a free one"`
}

// helloPatience is the time for one connection to send its ClientHello.
const helloPatience = 10 * time.Second

func newHelloCommand() *cobra.Command {
	f := helloFlags{Listen: "localhost:0"}
	return bind.Flags(&cobra.Command{
		Use:   "hello FILE",
		Short: "Record the ClientHello of a browser, for the cover https",
		Long: `Wait for a browser on this machine, and write to FILE what it says first in TLS:
its ClientHello. A client with the cover https and hello=FILE then begins its
connections as this browser does.

The browser shows an error, since nobody answers it. Use a window that has not
visited the address before: a ClientHello that resumes an earlier connection is
not taken.`,
		Example: `  heddle disguise hello browser.hello
  heddle disguise dial bridge.toml --cover https:site=site.db:hello=browser.hello --listen 127.0.0.1:1080`,
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error { return f.run(cmd, args[0]) },
	}, &f)
}

func (f helloFlags) run(cmd *cobra.Command, file string) error {
	var config net.ListenConfig
	l, err := config.Listen(cmd.Context(), "tcp", f.Listen)
	if err != nil {
		return &path.Error{What: "--listen " + f.Listen, Why: "it cannot be listened on", Err: err, Hint: "such as localhost:0"}
	}
	defer l.Close()
	defer context.AfterFunc(cmd.Context(), func() { l.Close() })()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	host, _, _ := net.SplitHostPort(f.Listen)
	fmt.Fprintf(cmd.ErrOrStderr(), "visit https://%s in a new window of the browser\n", net.JoinHostPort(host, port))
	for {
		c, err := l.Accept()
		if err != nil {
			return cmp.Or(context.Cause(cmd.Context()), err)
		}
		_ = c.SetDeadline(time.Now().Add(helloPatience))
		said, err := browser.Record(c)
		c.Close()
		if err != nil {
			fmt.Fprintln(cmd.ErrOrStderr(), "a connection is of no use:", err)
			continue
		}
		if err := atomicfile.Write(file, said, 0o644); err != nil {
			return err
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "wrote %s, %d bytes\n", file, len(said))
		return err
	}
}
