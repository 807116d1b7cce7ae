package disguise

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/spf13/cobra"

	"heddle/cmd/heddle/internal/bind"
	"heddle/disguise/cover/web"
	"heddle/disguise/site"
	"heddle/path"
)

func newSiteServeCommand() *cobra.Command {
	f := struct {
		Listen string `flag:"listen" help:"listen on <ADDRESS:PORT>"`
	}{"127.0.0.1:8080"}
	return bind.Flags(&cobra.Command{
		Use:   "serve FILE",
		Short: "Show a site to browsers as it was recorded",
		Long: `Serve a site over plain HTTP as it was recorded, with nothing hidden, to look at
it in a browser. Requests with other tokens get the recorded answer. It serves
until it is interrupted.`,
		Example: "  heddle disguise site serve site.db\n" +
			"  heddle disguise site serve site.db --listen 127.0.0.1:0",
		Args: cobra.ExactArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			s, err := site.Open(args[0])
			if err != nil {
				return err
			}
			l, err := (&net.ListenConfig{}).Listen(cmd.Context(), "tcp", f.Listen)
			if err != nil {
				return &path.Error{What: "--listen " + f.Listen, Err: err, Hint: "name a free port of this machine, or 0 for any, such as 127.0.0.1:0"}
			}
			web := &http.Server{Handler: web.Recorded(s), ReadHeaderTimeout: time.Minute, IdleTimeout: time.Minute}
			defer context.AfterFunc(cmd.Context(), func() { web.Close() })()
			fmt.Fprintf(cmd.ErrOrStderr(), "%s is at http://%s%s\n", s.Origin, l.Addr(), s.Objects[s.Pages[0].Document].URL)
			if err := web.Serve(l); !errors.Is(err, http.ErrServerClosed) {
				return err
			}
			return nil
		},
	}, &f)
}
