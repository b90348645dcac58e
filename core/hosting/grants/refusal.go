package grants

import (
	"fmt"
	"strings"
)

// Reasons of a refusal, as they stand in an OffloadedPod's status.
const (
	ReasonNoContract   = "NoContract"
	reasonExceeded     = "ContractExceeded"
	ReasonPodSecurity  = "PodSecurity"
	ReasonSysctl       = "SysctlForbidden" // as kubelets say it
	ReasonImage        = "ImageNotAllowed"
	ReasonNotSupported = "NotSupported"
	ReasonInvalid      = "Invalid"
	ReasonNameTaken    = "NameTaken"
	ReasonForbidden    = "Forbidden"
	ReasonQuota        = "QuotaExceeded"
	ReasonNamespaces   = "TooManyNamespaces"
)

// Refusal is the provider's no to a pod.
type Refusal struct{ Reason, Message string }

func (r *Refusal) Error() string { return r.Reason + ": " + r.Message }

func Refused(reason, format string, args ...any) *Refusal {
	return &Refusal{Reason: reason, Message: fmt.Sprintf(format, args...)}
}

// Cut shortens a text to n bytes.
func Cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-3], "") + "..."
}
