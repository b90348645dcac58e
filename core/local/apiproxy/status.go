package apiproxy

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
)

// reasons are what a Status says beside its code, and after how many seconds the caller may try again; others are Forbidden.
var reasons = map[int]struct {
	reason metav1.StatusReason
	retry  int32
}{
	http.StatusBadRequest:            {metav1.StatusReasonBadRequest, 0},
	http.StatusUnauthorized:          {metav1.StatusReasonUnauthorized, 0},
	http.StatusMethodNotAllowed:      {metav1.StatusReasonMethodNotAllowed, 0},
	http.StatusGone:                  {metav1.StatusReasonExpired, 0},
	http.StatusRequestEntityTooLarge: {metav1.StatusReasonRequestEntityTooLarge, 0},
	http.StatusTooManyRequests:       {metav1.StatusReasonTooManyRequests, 1},
	http.StatusServiceUnavailable:    {metav1.StatusReasonServiceUnavailable, 1},
	http.StatusGatewayTimeout:        {metav1.StatusReasonTimeout, 1},
}

// Refuse answers with a Kubernetes Status.
func Refuse(w http.ResponseWriter, code int, message string) {
	Say(w, Failure(code, message))
}

// Say answers with a Status.
func Say(w http.ResponseWriter, status metav1.Status) {
	if status.Details != nil && status.Details.RetryAfterSeconds > 0 {
		w.Header().Set("Retry-After", fmt.Sprint(status.Details.RetryAfterSeconds))
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(int(status.Code))
	_ = json.NewEncoder(w).Encode(&status) // the caller is gone when this fails
}

// Failure is the Status that says no.
func Failure(code int, message string) metav1.Status {
	status := metav1.Status{
		TypeMeta: metav1.TypeMeta{Kind: "Status", APIVersion: "v1"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: metav1.StatusReasonForbidden, Message: "kith: " + message,
	}
	if known, ok := reasons[code]; ok {
		status.Reason = known.reason
		if known.retry > 0 {
			status.Details = &metav1.StatusDetails{RetryAfterSeconds: known.retry}
		}
	}
	return status
}

// Warn adds a warning (RFC 7234, section 5.5), which kubectl shows.
func Warn(to http.Header, text string) { to.Add("Warning", fmt.Sprintf("299 - %q", text)) }

// Message is that of the Status in an answer, which may be cut off behind it; empty when there is none.
func Message(answer *http.Response, body []byte) string {
	var status metav1.Status
	switch raw, protobuf := bytes.CutPrefix(body, []byte("k8s\x00")); {
	case protobuf:
		var around runtime.Unknown
		if around.Unmarshal(raw) == nil && status.Unmarshal(around.Raw) == nil {
			return status.Message
		}
	case strings.HasPrefix(answer.Header.Get("Content-Type"), "application/json"):
		if json.Unmarshal(body, &status) == nil {
			return status.Message
		}
	}
	return ""
}

// maxStatus is how much of an answer is read to learn the reason of a refusal.
const maxStatus = 8 << 10

// Why is the Message of an answer that goes on to the caller whole, or a general one.
func Why(answer *http.Response) (string, error) {
	begin, err := io.ReadAll(io.LimitReader(answer.Body, maxStatus))
	if err != nil {
		return "", err
	}
	answer.Body = struct {
		io.Reader
		io.Closer
	}{io.MultiReader(bytes.NewReader(begin), answer.Body), answer.Body}
	return cmp.Or(Message(answer, begin), "refused by the API server"), nil
}
