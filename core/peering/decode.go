package peering

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"mime"
	"reflect"
	"strings"
	"sync"

	"kith.dev/core/contract"
	"kith.dev/core/wire"
)

// message is what can be decoded from the network.
type message interface{ Validate() error }

// decode reads one message: JSON of the right content type, at most max bytes, nothing behind it, valid.
// The error is a *Problem for the sender.
func decode(contentType string, body io.Reader, max int, into message) error {
	media, params, err := mime.ParseMediaType(contentType)
	if charset, ok := params["charset"]; err != nil || media != "application/json" && media != MediaProblem || ok && !strings.EqualFold(charset, "utf-8") {
		return &Problem{Code: CodeBadRequest, Message: fmt.Sprintf("content type: %.64q is not application/json", contentType)}
	}
	data, err := io.ReadAll(io.LimitReader(body, int64(max)+1))
	if err != nil {
		return &Problem{Code: CodeBadRequest, Message: "body: did not come whole and in time"}
	}
	if len(data) > max {
		return &Problem{Code: CodeTooLarge, Message: fmt.Sprintf("body: more than %d bytes", max)}
	}
	return unmarshal(data, into)
}

func unmarshal(data []byte, into message) error {
	if !bytes.HasPrefix(bytes.TrimLeft(data, " \t\r\n"), []byte("{")) && !bytes.HasPrefix(data, []byte("[")) {
		return &Problem{Code: CodeBadRequest, Message: "body: is no JSON object"}
	}
	if err := shapeOf(into).Check(data, bound); err != nil {
		return &Problem{Code: CodeBadRequest, Message: wire.Line("body: "+err.Error(), maxReason)}
	}
	if err := json.Unmarshal(data, into); err != nil {
		return &Problem{Code: CodeBadRequest, Message: wire.Line("body: "+err.Error(), maxReason)}
	}
	if err := into.Validate(); err != nil {
		return &Problem{Code: CodeBadRequest, Message: wire.Line(err.Error(), maxReason)}
	}
	return nil
}

// bound is how much may be made of a message; with what is read and copied on the way it is less than sixteen times its bytes.
var bound = wire.Bound{Factor: 12, Slack: 64 << 10}

// shapes are those of the messages, made when the first of its kind comes.
var shapes struct {
	sync.Mutex
	types wire.Types
}

func shapeOf(into message) *wire.Shape {
	of := reflect.TypeOf(into).Elem()
	if outer, ok := into.(*unchecked); ok {
		of = reflect.TypeOf(outer.into).Elem()
	}
	shapes.Lock()
	defer shapes.Unlock()
	shapes.types.Fold = true
	return shapes.types.Of(of)
}

// signed and refs make what others define, or lists, decodable.
type signed struct{ contract.Signed }

func (s *signed) Validate() error {
	if len(s.Document) == 0 || len(s.Document) > contract.MaxDocument {
		return fmt.Errorf("document: has %d bytes, want 1 to %d", len(s.Document), contract.MaxDocument)
	}
	return nil
}

type refs []ContractRef

func (r *refs) Validate() error {
	if len(*r) > 256 {
		return fmt.Errorf("%d contracts, at most 256 are allowed", len(*r))
	}
	for i := range *r {
		if err := (*r)[i].Validate(); err != nil {
			return err
		}
	}
	return nil
}
