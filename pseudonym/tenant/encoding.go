package tenant

import (
	"bufio"
	"compress/gzip"
	"errors"
	"io"
	"net/http"
	"strings"

	"heddle/internal/contentcoding"
)

// gzipped is the one encoding that the site's server is asked for, and only if the client takes it.
const gzipped = contentcoding.Gzip

// encodings asks the site's server for the encoding that pages are packed in again.
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

// packer packs what is written, and lets it leave at once.
type packer struct {
	z   *gzip.Writer
	out *bufio.Writer // the packer itself writes few bytes at a time
}

func newPacker(w io.Writer) packer {
	out := bufio.NewWriter(w)
	z, _ := gzip.NewWriterLevel(out, gzip.BestSpeed) // which is a level
	return packer{z, out}
}

func (p packer) Write(b []byte) (int, error) {
	n, err := p.z.Write(b)
	return n, errors.Join(err, p.z.Flush(), p.out.Flush())
}

func (p packer) Close() error { return errors.Join(p.z.Close(), p.out.Flush()) }
