package hosting

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"mime"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// written are the kinds a consumer writes, and what comes with a delete. None has amounts in it that the API server parses.
var written = []string{"OffloadedPod", "Service", "ConfigMap", "Secret", "EndpointSlice", "DeleteOptions"}

// checkBody refuses what no consumer has to say. The API server decodes a body as the kind that it names, before it
// looks whether that belongs at this path, and to parse an amount in a Pod may take it hours (v1alpha1.PlainAmount).
// What is malformed it refuses itself.
func checkBody(contentType string, body []byte) error {
	if contentType == "" {
		contentType = runtime.ContentTypeJSON // as the API server has it
	}
	media, _, err := mime.ParseMediaType(contentType)
	if err != nil {
		return fmt.Errorf("content type %.64q: %w", contentType, err)
	}
	switch media {
	case runtime.ContentTypeProtobuf:
		message, ok := bytes.CutPrefix(body, []byte("k8s\x00"))
		var object runtime.Unknown
		if !ok || object.Unmarshal(message) != nil {
			return nil
		}
		return checkKind(object.Kind)
	case runtime.ContentTypeJSON, string(types.MergePatchType), string(types.StrategicMergePatchType):
		return checkJSON(body)
	case string(types.ApplyYAMLPatchType):
		if !json.Valid(body) {
			return errors.New("an apply has to be JSON")
		}
		return checkJSON(body)
	}
	return fmt.Errorf("content type %.64q is not taken", contentType)
}

// checkJSON looks at each field that could be taken for the kind.
func checkJSON(body []byte) error {
	tokens := json.NewDecoder(bytes.NewReader(body))
	if token, err := tokens.Token(); err != nil || token != json.Delim('{') {
		return nil //nolint:nilerr // malformed
	}
	for tokens.More() {
		name, err := tokens.Token()
		var value json.RawMessage
		if err != nil || tokens.Decode(&value) != nil {
			return nil //nolint:nilerr // malformed
		}
		if text, _ := name.(string); !strings.EqualFold(text, "kind") {
			continue
		}
		var kind string
		if json.Unmarshal(value, &kind) != nil {
			return fmt.Errorf("kind: %.64s is none", value)
		}
		if err := checkKind(kind); err != nil {
			return err
		}
	}
	return nil
}

// checkKind: without one, the body is of the kind of its path.
func checkKind(kind string) error {
	if kind != "" && !slices.Contains(written, kind) {
		return fmt.Errorf("kind: a %.64q cannot be written here", kind)
	}
	return nil
}
