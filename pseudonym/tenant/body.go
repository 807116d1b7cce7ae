package tenant

import (
	"compress/gzip"
	"errors"
	"io"
	"mime"
	"net/http"
	"strings"

	"heddle/pseudonym/tenant/page"
)

// gzipped is the one encoding that the site's server is asked for, and only if the client takes it.
const gzipped = "gzip"

// encodings asks the site's server for encodings that pages can be changed in.
func encodings(header http.Header) {
	accepted := "identity"
	for _, value := range header.Values("Accept-Encoding") {
		for one := range strings.SplitSeq(value, ",") {
			name, quality, _ := strings.Cut(strings.TrimSpace(one), ";")
			if (strings.EqualFold(name, gzipped) || name == "*") && strings.TrimSpace(quality) != "q=0" {
				accepted = gzipped
			}
		}
	}
	header.Set("Accept-Encoding", accepted)
}

// changer changes what is read.
type changer func(io.Writer, io.Reader) error

// changerOf returns what replaces a host in a kind of content, or nil for kinds that stay as they are.
func changerOf(contentType string, h *page.Host) changer {
	kind, _, err := mime.ParseMediaType(contentType)
	switch {
	case err != nil:
		return nil
	case kind == "text/html", kind == "application/xhtml+xml":
		return h.HTML
	case kind == "text/css":
		return func(w io.Writer, r io.Reader) error {
			_, err := io.Copy(w, h.Text(r))
			return err
		}
	}
	return nil
}

// pages replaces the site's name in pages and style sheets. A part of one stays as it is, and so does one in an encoding that was not
// asked for.
func pages(r *http.Response, h *page.Host) {
	change := changerOf(r.Header.Get("Content-Type"), h)
	encoding := r.Header.Get("Content-Encoding")
	switch {
	case change == nil, r.StatusCode == http.StatusPartialContent, r.StatusCode == http.StatusSwitchingProtocols, encoding != "" && encoding != "identity" && encoding != gzipped:
		return
	}
	for _, key := range []string{"Content-Length", "Accept-Ranges", "Content-MD5", "Digest", "Content-Digest", "Repr-Digest"} {
		r.Header.Del(key)
	}
	r.ContentLength = -1
	if tag := r.Header.Get("ETag"); tag != "" && !strings.HasPrefix(tag, "W/") {
		r.Header.Set("ETag", "W/"+tag)
	}
	if r.Request.Method == http.MethodHead || r.StatusCode == http.StatusNoContent || r.StatusCode == http.StatusNotModified {
		return
	}
	from, to := io.Pipe()
	body := r.Body
	go func() {
		if encoding == gzipped {
			to.CloseWithError(regzip(to, body, change))
		} else {
			to.CloseWithError(change(to, body))
		}
	}()
	r.Body = changed{from, body}
}

// regzip changes content that is compressed. It compresses fast, since this is done for each request.
func regzip(w io.Writer, r io.Reader, change changer) error {
	in, err := gzip.NewReader(r)
	if err != nil {
		return err
	}
	out, err := gzip.NewWriterLevel(w, gzip.BestSpeed)
	if err != nil {
		return err
	}
	return errors.Join(change(flushing{out}, in), out.Close())
}

// flushing lets what was changed leave at once.
type flushing struct{ *gzip.Writer }

func (f flushing) Write(b []byte) (int, error) {
	n, err := f.Writer.Write(b)
	return n, errors.Join(err, f.Flush())
}

// changed is the body of an answer that is changed while it passes.
type changed struct {
	*io.PipeReader
	body io.Closer
}

func (c changed) Close() error { return errors.Join(c.PipeReader.Close(), c.body.Close()) }
