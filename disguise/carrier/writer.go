package carrier

import (
	"bytes"
	"io"
)

// pourer is a [Carrier] that needs a part of the payload only once the object is written up to there.
type pourer interface {
	Carrier
	// pour writes the object with Capacity bytes of a payload. It fails with the error of the payload's reader if there are fewer.
	pour(w io.Writer, original []byte, payload io.Reader) error
}

// Write writes an object with a payload of Capacity bytes. It reads each part of the payload as late as it can, so what a slow reader of the
// object gets is recent.
func Write(w io.Writer, c Carrier, original []byte, payload io.Reader) error {
	if c, ok := c.(pourer); ok {
		return c.pour(w, original, payload)
	}
	hidden := make([]byte, c.Capacity(original))
	if _, err := io.ReadFull(payload, hidden); err != nil {
		return err
	}
	changed, err := c.Embed(original, hidden)
	if err == nil {
		_, err = w.Write(changed)
	}
	return err
}

// embed pours a payload that is there into an object.
func embed(c pourer, original, payload []byte) ([]byte, error) {
	var out bytes.Buffer
	rest := bytes.NewReader(payload)
	switch err := c.pour(&out, original, rest); {
	case err == io.ErrUnexpectedEOF || err == io.EOF || err == nil && rest.Len() > 0: //nolint:errorlint // as readers return it
		return nil, wrongSize(len(payload))
	case err != nil:
		return nil, err
	}
	return out.Bytes(), nil
}
