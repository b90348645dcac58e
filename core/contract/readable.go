package contract

import (
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strings"
	"time"
)

// readably puts the decoder's own words into those of a reader; what a type of ours says of its text it leaves.
func readably(err error) error {
	var syntax *json.SyntaxError
	var form *json.UnmarshalTypeError
	var text base64.CorruptInputError
	var moment *time.ParseError
	switch {
	case errors.As(err, &syntax), errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF):
		return errors.New("is not JSON")
	case errors.As(err, &form):
		return fmt.Errorf("%.64q has another form than in a contract", form.Field)
	case errors.As(err, &text):
		return errors.New("a key in it is not base64")
	case errors.As(err, &moment), strings.HasPrefix(err.Error(), "Time."):
		return errors.New("a time in it is not of the form of RFC 3339")
	}
	if field, ok := strings.CutPrefix(err.Error(), "json: unknown field "); ok { // it has no type
		return fmt.Errorf("%.64s is no field of a contract", field)
	}
	return err
}
