package hosting

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// maxStatus is how much of a refusal of the API server is read to learn its reason.
const maxStatus = 8 << 10

// answered notes what the API server refused.
func (d *Door) answered(resp *http.Response) error {
	reason := RefusedForbidden
	switch resp.StatusCode {
	case http.StatusUnauthorized, http.StatusForbidden:
	case http.StatusTooManyRequests:
		reason = RefusedLimits
	case http.StatusRequestEntityTooLarge:
		reason = RefusedBody
	default:
		return nil
	}
	p, ok := resp.Request.Context().Value(passKey{}).(pass)
	if !ok {
		return nil
	}
	begin, err := io.ReadAll(io.LimitReader(resp.Body, maxStatus))
	if err != nil {
		return err
	}
	resp.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), resp.Body), resp.Body}
	d.refused(p.in, p.consumerID, reason, cut(why(resp.Header.Get("Content-Type"), begin), 300))
	return nil
}

// why reads the message of a Status.
func why(contentType string, body []byte) string {
	var status metav1.Status
	switch raw, protobuf := bytes.CutPrefix(body, []byte("k8s\x00")); {
	case protobuf:
		var around runtime.Unknown
		if around.Unmarshal(raw) == nil && status.Unmarshal(around.Raw) == nil && status.Message != "" {
			return status.Message
		}
	case strings.HasPrefix(contentType, "application/json"):
		if json.Unmarshal(body, &status) == nil && status.Message != "" {
			return status.Message
		}
	}
	return "refused by the API server"
}
