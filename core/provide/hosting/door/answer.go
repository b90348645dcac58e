package door

import (
	"cmp"
	"encoding/json"
	"errors"
	"log/slog"
	"net/http"

	"kith.dev/core/agree/peering"
	"kith.dev/core/api"
)

// problemCodes are what the consumer's daemon calls them.
var problemCodes = map[api.Code]peering.Code{
	api.CodeInvalid: peering.CodeBadRequest, api.CodeForbidden: peering.CodeForbidden, api.CodeConflict: peering.CodeConflict, api.CodeNotReady: peering.CodeUnavailable,
}

// Answer writes body, or the error. What is neither a *peering.Problem nor an *api.Error is for this side's log, not for the peer.
func Answer(log *slog.Logger, w http.ResponseWriter, body any, err error) {
	code := http.StatusOK
	if err != nil {
		var said *peering.Problem
		if errors.As(err, &said) {
			Say(w, said.HTTPStatus(), said)
			return
		}
		var known *api.Error
		if !errors.As(err, &known) {
			log.Warn("twin namespace", "err", err)
			known = &api.Error{Code: api.CodeNotReady, Message: "the provider could not do it now", Do: "try again"}
		}
		said = &peering.Problem{Code: cmp.Or(problemCodes[known.Code], peering.CodeInternal), Message: known.Message, Do: known.Do}
		if known.Reason != "" {
			said.Message += ": " + known.Reason
		}
		code, body = known.Code.HTTPStatus(), said
	}
	Say(w, code, body)
}

func Say(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the caller is gone when this fails
}
