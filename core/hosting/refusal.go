package hosting

import (
	"fmt"
	"strings"
)

// Reasons of a refusal, as they stand in an OffloadedPod's status.
const (
	reasonNoContract   = "NoContract"
	reasonExceeded     = "ContractExceeded"
	reasonPodSecurity  = "PodSecurity"
	reasonSysctl       = "SysctlForbidden" // as kubelets say it
	reasonImage        = "ImageNotAllowed"
	reasonNotSupported = "NotSupported"
	reasonInvalid      = "Invalid"
	reasonNameTaken    = "NameTaken"
	reasonForbidden    = "Forbidden"
	reasonQuota        = "QuotaExceeded"
	reasonNamespaces   = "TooManyNamespaces"
)

// refusal is the provider's no to a pod.
type refusal struct{ reason, message string }

func (r *refusal) Error() string { return r.reason + ": " + r.message }

func refused(reason, format string, args ...any) *refusal {
	return &refusal{reason: reason, message: fmt.Sprintf(format, args...)}
}

// cut shortens a text to n bytes.
func cut(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return strings.ToValidUTF8(s[:n-3], "") + "..."
}
