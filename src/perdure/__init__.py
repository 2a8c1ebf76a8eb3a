"""Perdure: a durable agent harness. Agents survive their process dying and carry on without doing anything twice."""

from perdure.agent.configure import configure
from perdure.agent.entries import (
    AssistantEntry,
    ResetEntry,
    SummaryEntry,
    SystemEntry,
    ToolResultEntry,
    UserEntry,
)
from perdure.agent.settings import Budget, CompactionSettings, Settings
from perdure.base.clock import DAY, HOUR, MINUTE, Clock, SystemClock
from perdure.base.drafts import plain
from perdure.base.errors import (
    Busy,
    Error,
    InvalidDecision,
    InvalidDefinition,
    InvalidValue,
    InvocationEnded,
    NestedTransaction,
    NotFound,
    OwnershipRefused,
    Refused,
    RequestConflict,
    SessionClosed,
    SessionPoisoned,
    StorageBusy,
    StorageCorrupt,
    StorageError,
    StorageFull,
    StorageInUse,
    StorageReadOnly,
    StorageRejected,
    StorageUncertain,
    TooNew,
    Unanswered,
)
from perdure.base.ids import ROOT, ConversationId, DocumentId, EntryId, SubmissionId, TaskId
from perdure.extensions.api import HookContext, SectionContext, ToolContext
from perdure.extensions.extension import Extension
from perdure.extensions.registry import Registry
from perdure.extensions.results import (
    UNSET,
    Add,
    AddTools,
    Block,
    CompactionPlan,
    Continue,
    Decline,
    Handoff,
    Remove,
    RunAnswer,
    Sleep,
    Summary,
    Terminate,
    ToolError,
    ToolResult,
    ToolRound,
    Wait,
)
from perdure.extensions.settled import Settled, SubmissionSettled
from perdure.harness.compaction import Compacted, Compaction
from perdure.harness.conversation import Conversation
from perdure.harness.harness import Harness
from perdure.harness.submission import Answer, Submission
from perdure.models.messages import (
    AssistantMessage,
    Attachment,
    Message,
    SystemMessage,
    Text,
    Thinking,
    ToolCall,
    ToolResultMessage,
    Usage,
    UserMessage,
)
from perdure.models.provider import ProviderModels
from perdure.models.retry import RetrySettings
from perdure.session.documents import Document, document_family
from perdure.session.entries import entry
from perdure.session.session import Session
from perdure.storage.open import open_storage
from perdure.tasks.decisions import Next
from perdure.tasks.definition import StoredTask, Task, phase, task
from perdure.tasks.durable import durable
from perdure.tasks.outcomes import Aborted, Completed, Failed, Faulted, Orphaned, Outcome
from perdure.tasks.runtime import TaskRun
from perdure.tasks.signals import Signal, SignalResult, SignalState
from perdure.tasks.states import SignalKey
from perdure.tasks.steps import StepFailed, StepInterrupted, Steps
from perdure.tasks.tasks import Wake
from perdure.tasks.transaction import TaskTransaction
from perdure.tasks.wakes import WakeReason

__version__ = "0.1.0"

# fmt: off
__all__ = [
    "DAY", "HOUR", "MINUTE", "ROOT", "UNSET", "Aborted", "Add", "AddTools", "Answer", "AssistantEntry",
    "AssistantMessage", "Attachment", "Block", "Budget", "Busy", "Clock", "Compacted", "Compaction", "CompactionPlan",
    "CompactionSettings", "Completed", "Continue", "Conversation", "ConversationId", "Decline", "Document",
    "DocumentId", "EntryId", "Error", "Extension", "Failed", "Faulted", "Handoff", "Harness", "HookContext",
    "InvalidDecision", "InvalidDefinition", "InvalidValue", "InvocationEnded", "Message", "NestedTransaction", "Next",
    "NotFound", "Orphaned", "Outcome", "OwnershipRefused", "ProviderModels", "Refused", "Registry", "Remove",
    "RequestConflict", "ResetEntry", "RetrySettings", "RunAnswer", "SectionContext", "Session", "SessionClosed",
    "SessionPoisoned", "Settings", "Settled", "Signal", "SignalKey", "SignalResult", "SignalState", "Sleep",
    "StepFailed", "StepInterrupted", "Steps", "StorageBusy", "StorageCorrupt", "StorageError", "StorageFull",
    "StorageInUse", "StorageReadOnly", "StorageRejected", "StorageUncertain", "StoredTask", "Submission",
    "SubmissionId", "SubmissionSettled", "Summary", "SummaryEntry", "SystemClock", "SystemEntry", "SystemMessage",
    "Task", "TaskId", "TaskRun", "TaskTransaction", "Terminate", "Text", "Thinking", "TooNew", "ToolCall",
    "ToolContext", "ToolError", "ToolResult", "ToolResultEntry", "ToolResultMessage", "ToolRound", "Unanswered",
    "Usage", "UserEntry", "UserMessage", "Wait", "Wake", "WakeReason", "configure", "document_family", "durable",
    "entry", "open_storage", "phase", "plain", "task",
]
# fmt: on
